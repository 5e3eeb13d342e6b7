"""A tour: three models from one server, pronouncing, searching, chatting and counting."""
