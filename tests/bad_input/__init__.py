"""The catalogue of wrong inputs, each with the sentence that a person gets for it: sentences.txt."""
