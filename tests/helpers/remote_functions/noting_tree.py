"""An estimator that workers fit in tests of the joblib backend. It requires scikit-learn."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sklearn.tree import DecisionTreeClassifier


class NotingTree(DecisionTreeClassifier):  # type: ignore[misc]
    """A tree that creates a file for each process in which it is fitted."""

    def __init__(self, folder: str = "", max_depth: int | None = None) -> None:
        super().__init__(max_depth=max_depth, random_state=0)
        self.folder = folder

    def fit(self, *args: Any, **options: Any) -> Any:
        Path(self.folder, str(os.getpid())).touch()
        time.sleep(0.1)  # so that no worker does all
        return super().fit(*args, **options)
