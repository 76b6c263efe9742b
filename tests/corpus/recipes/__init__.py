"""How the programs of the corpus are fetched and compiled; `scripts/corpus` is the command line of this package."""
