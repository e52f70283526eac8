"""The registry of the built-in suite's recipes: a function a task, from the sources to a `Spec`.

What a task is called, where it comes from, its metric and its side of the train/dev/held-out split stand in builtin.json,
which the TypeScript side reads too.
"""
RECIPES = {}


def recipe(task_id):
    """Registers `fn(src) -> Spec` under a task's id."""
    def register(fn):
        if task_id in RECIPES:
            raise ValueError(f"two recipes for {task_id}")
        RECIPES[task_id] = fn
        return fn
    return register


def is_value(column, value="yes"):
    """1 where a column says `value` (any case), else 0."""
    return (column.astype(str).str.lower() == value).astype(int)
