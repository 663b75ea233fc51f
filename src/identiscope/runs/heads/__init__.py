"""What the heads of a model do, over a corpus: statistics with intervals, syntax, distances, importance."""
