"""Errors that every backend raises for the same bad input."""

__all__ = ["ShapeError", "TreeError"]


class ShapeError(ValueError):
    """An array has a shape or a dtype that its name does not allow."""


class TreeError(ValueError):
    """Arrays that should describe a tree do not: a cycle, a second parent, a slot that nothing reaches."""
