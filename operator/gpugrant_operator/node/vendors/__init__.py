"""Pure parsers of what vendors' drivers and tools say: text in, frozen values out, no file is opened."""
