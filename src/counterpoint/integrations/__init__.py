"""Counterpoint with other libraries: its losses as their trainers call them, and its training in their queues."""
