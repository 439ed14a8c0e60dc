"""The only room that imports Kopf: events in, keys of work out."""
