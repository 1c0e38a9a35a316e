"""Labels as tensors, what a network answers, and how the two are compared: classes, numbers, several labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.data.targets import SEPARATOR, Task, label_set
from icone.evaluation.assessment import Partition, Result
from icone.evaluation.inputs import FloatArray
from icone.evaluation.multilabel import multilabel_result
from icone.evaluation.probes import classification_result, sorted_classes
from icone.evaluation.regression import regression_result

UNEQUAL = 2.0
"""How many times as many labels as the rarest class the most frequent one has, where that is said."""
YES = 0.5
"""Probability from which on a sample is said to have a label."""


@dataclass(frozen=True)
class LabelCode:
    """What the outputs of a network mean.

    Classes: one output each, softmax. Several labels: one output each, sigmoid. Numbers: one output, in units of the
    standard deviation of the training labels, from their mean.

    With `shares`, classes are told apart as if each were as frequent as the others (logit adjustment, Menon et al.
    2021, arXiv:2007.07314). The loss adds the logarithm of each class's share of the training samples to its output,
    and an answer is without it. Outputs then need not hold how frequent a class is, and no rare class is given up.
    """

    task: Task
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    shares: tuple[float, ...] = ()
    """Of the training samples, by class; none: the loss is plain cross-entropy."""

    @classmethod
    def of(cls, task: Task, labels: Sequence[str], *, balanced: bool = False) -> LabelCode:
        """The code of these training labels; `balanced` classes count alike."""
        if task == "regression":
            numbers = np.array(labels, dtype=np.float64)
            return cls(task, (), float(numbers.mean()), float(numbers.std()) or 1.0)
        if task == "multilabel":
            return cls(task, tuple(sorted(set().union(*map(label_set, labels)))))
        names = sorted_classes(labels)
        counts = Counter(labels)
        return cls(task, names, shares=tuple(counts[name] / len(labels) for name in names) if balanced else ())

    @property
    def outputs(self) -> int:
        return len(self.names) or 1

    @property
    def described(self) -> str:
        """What the network answers, in a few words.

        >>> LabelCode("classification", ("a", "b")).described, LabelCode("regression").described
        ('2 classes (a, b)', 'numbers')
        """
        if not self.names:
            return "numbers"
        more = ", …" if len(self.names) > 5 else ""
        kind = "classes" if self.task == "classification" else "labels"
        return f"{len(self.names)} {kind} ({', '.join(self.names[:5])}{more})"

    @property
    def note(self) -> str:
        """What to say of classes of unequal frequency that count alike, or nothing.

        >>> LabelCode.of("classification", ["a"] * 9 + ["b"], balanced=True).note
        'classes count alike, though b has 10 % of the labels: probabilities are those of equally frequent classes'
        """
        if not self.shares or max(self.shares) < UNEQUAL * min(self.shares):
            return ""
        rarest = min(range(len(self.shares)), key=lambda code: self.shares[code])
        alike = f"classes count alike, though {self.names[rarest]} has {100 * self.shares[rarest]:.2g} % of the labels"
        return f"{alike}: probabilities are those of equally frequent classes"

    def encode(self, labels: Sequence[str]) -> Tensor:
        """Targets: classes (N,), numbers (N,), or 0 and 1 (N, labels). An unknown class is -1, which no loss counts."""
        if self.task == "regression":
            return torch.tensor([(float(text) - self.mean) / self.std for text in labels])
        if self.task == "multilabel":
            return torch.tensor([[float(name in label_set(text)) for name in self.names] for text in labels])
        codes = {name: code for code, name in enumerate(self.names)}
        return torch.tensor([codes.get(text, -1) for text in labels])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy, binary cross-entropy over all labels, or squared error, as the task is.

        >>> code = LabelCode.of("classification", ["a", "a", "a", "b"], balanced=True)
        >>> code.loss(torch.zeros(1, 2), torch.tensor([1])).exp().round()  # a quarter of the labels are b
        tensor(4.)
        """
        if self.task == "regression":
            return F.mse_loss(outputs[:, 0], targets)
        if self.task == "multilabel":
            return F.binary_cross_entropy_with_logits(outputs, targets)
        if self.shares:
            outputs = outputs + outputs.new_tensor(self.shares).log()
        return F.cross_entropy(outputs, targets, ignore_index=-1)

    def decode(self, outputs: Tensor) -> FloatArray:
        """Probabilities (N, names), or numbers (N,) in the units of the labels."""
        answers: FloatArray = self.answers(outputs.double()).cpu().numpy()
        return answers[:, 0] if self.task == "regression" else answers

    def answers(self, outputs: Tensor) -> Tensor:
        """Probabilities (N, names), or numbers (N, 1) in the units of the labels."""
        if self.task == "regression":
            return outputs * self.std + self.mean
        return outputs.sigmoid() if self.task == "multilabel" else outputs.softmax(dim=1)

    def say(self, answers: FloatArray) -> list[Any]:
        """What is predicted: the likeliest class, the number, or the labels with a probability of a half or more.

        >>> LabelCode("multilabel", ("cyst", "stone")).say(np.array([[0.9, 0.6], [0.1, 0.2]]))
        ['cyst|stone', '|']
        """
        if self.task == "regression":
            return [float(number) for number in answers]
        if self.task == "multilabel":
            chosen = [[n for n, p in zip(self.names, row, strict=True) if p >= YES] for row in answers]
            return [SEPARATOR.join(names) or SEPARATOR for names in chosen]
        return [self.names[code] for code in answers.argmax(axis=1)]

    def score(self, answers: FloatArray, partition: Partition) -> Result:
        """The scores of `icone evaluate` for answers on the test part."""
        train, test = (partition.labels[rows].tolist() for rows in (partition.train, partition.test))
        groups = partition.groups_of(partition.test)
        if self.task == "regression":
            return regression_result(answers, np.array(test, dtype=np.float64), len(train), groups)
        if self.task == "multilabel":
            known, truth = ([label_set(text) for text in part] for part in (train, test))
            return multilabel_result(known, truth, lambda name, _: answers[:, self.names.index(name)], [])
        return classification_result(train, test, self.names, answers, minority=partition.minority, test_groups=groups)

    def quality(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """What decides which epoch is kept, from outputs on the validation part: its loss, and of classes more.

        Balanced accuracy comes before the loss: cross-entropy grows with certainty while classes still get better.
        """
        loss = {"val_loss": float(self.loss(outputs, targets))}
        if self.task != "classification":
            return loss
        right, known = outputs.argmax(dim=1) == targets, targets[targets >= 0]
        recalls = [right[targets == code].double().mean() for code in known.unique()]
        return {**loss, "val_balanced_accuracy": float(torch.stack(recalls).mean())}
