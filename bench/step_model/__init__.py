"""The evaluator's two speeds beside each other: `cost.predict`, a closed form, and `cost.simulate`, event by event."""
