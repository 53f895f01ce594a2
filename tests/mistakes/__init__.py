"""The catalogue of known mistakes: each is made on purpose, and every proof that it names must find it.

A mistake is a function that patches the product, or the harness that stands for a part of it. Its decorator
(:mod:`tests.mistakes.mistake`) names the rules that it breaks (:mod:`tests.mistakes.rules`) and the proofs: unit
tests, small worlds of the explorer, scenarios of the simulator, the model. :mod:`tests.mistakes.catalogue` has all.

Mistakes that only one proof can find are lists of their own: :mod:`tests.mistakes.recordings` (tests/vectors),
:mod:`tests.mistakes.worked_example` (tests/kip932), :mod:`tests.mistakes.store` (tests/integration).
"""
