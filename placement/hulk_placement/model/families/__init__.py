"""How each family of models spells its dimensions in a `config.json`, and what it has that no key says."""
