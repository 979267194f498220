"""DeepSpeed, behind one door: nothing outside this folder imports it.

``engine.config`` writes its settings, ``engine.deepspeed`` runs it, ``engine.build`` compiles its CPU kernel once,
``engine.release`` lets an engine go.
"""
