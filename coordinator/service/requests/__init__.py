"""The way of every request, from the code that receives it to its handler."""
