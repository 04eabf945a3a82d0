"""Train a small network on 1,797 real pictures of handwritten digits, and log everything a run can hold.

    python examples/digits.py --tracker json,tensorboard
    python examples/digits.py --defconfig all-local

Needs NumPy and scikit-learn, whose package carries the pictures. A run takes a few seconds.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import trackers

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
CLASSES = 10


class Network:
    """Two layers with a ReLU between, trained by stochastic gradient descent with momentum."""

    def __init__(self, inputs: int, hidden: int, random: np.random.Generator) -> None:
        self.weights = {
            "hidden/weight": random.normal(0, math.sqrt(2 / inputs), (inputs, hidden)),
            "hidden/bias": np.zeros(hidden),
            "output/weight": random.normal(0, math.sqrt(1 / hidden), (hidden, CLASSES)),
            "output/bias": np.zeros(CLASSES),
        }
        self.velocity = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def forward(self, images: Array) -> tuple[Array, Array]:
        """Activations of the hidden layer, shape (n, hidden), and the log-probabilities, shape (n, 10)."""
        hidden = np.maximum(images @ self.weights["hidden/weight"] + self.weights["hidden/bias"], 0)
        logits = hidden @ self.weights["output/weight"] + self.weights["output/bias"]
        logits -= logits.max(axis=1, keepdims=True)
        return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def evaluate(self, images: Array, labels: Labels) -> tuple[float, Labels]:
        """Mean cross-entropy in nats, and the predicted labels."""
        _, log_probabilities = self.forward(images)
        loss = -log_probabilities[np.arange(len(labels)), labels].mean()
        return float(loss), log_probabilities.argmax(axis=1)

    def train_step(self, images: Array, labels: Labels, learning_rate: float, momentum: float) -> tuple[float, float]:
        """One step; returns the loss before it and the gradient's l2 norm."""
        count = np.arange(len(labels))
        hidden, log_probabilities = self.forward(images)
        loss = float(-log_probabilities[count, labels].mean())
        error = np.exp(log_probabilities)
        error[count, labels] -= 1
        error /= len(labels)
        behind = (error @ self.weights["output/weight"].T) * (hidden > 0)
        gradients = {
            "hidden/weight": images.T @ behind,
            "hidden/bias": behind.sum(axis=0),
            "output/weight": hidden.T @ error,
            "output/bias": error.sum(axis=0),
        }
        for name, gradient in gradients.items():
            self.velocity[name] = momentum * self.velocity[name] - learning_rate * gradient
            self.weights[name] += self.velocity[name]
        return loss, math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))


def split(random: np.random.Generator) -> tuple[Array, Labels, Array, Labels]:
    """Training images and labels, then those for validation: one in five. Pixels from 0 to 1."""
    digits = load_digits()
    order = random.permutation(len(digits.target))
    images, labels = digits.data[order] / 16.0, digits.target[order]
    border = len(order) * 4 // 5
    return images[:border], labels[:border], images[border:], labels[border:]


def picture(image: Array) -> NDArray[np.uint8]:
    """A digit as grey pixels, dark on light, eight times as large as it was: shape (64, 64)."""
    return np.kron(255 - image.reshape(8, 8) * 255, np.ones((8, 8))).astype(np.uint8)


def confusion(labels: Labels, predicted: Labels) -> trackers.Table:
    """Counts by true digit (row) and predicted digit (column)."""
    counts = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    np.add.at(counts, (labels, predicted), 1)
    columns = ["digit", *(f"read as {digit}" for digit in range(CLASSES))]
    return trackers.Table(columns=columns, data=[[digit, *row] for digit, row in enumerate(counts.tolist())])


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on handwritten digits and log the run.")
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=64, help="pictures per step")
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layer")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="at the start; falls along a cosine to 0")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--eval-interval", type=int, default=50, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=0)
    trackers.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    random = np.random.default_rng(args.seed)
    train_images, train_labels, val_images, val_labels = split(random)
    network = Network(train_images.shape[1], args.hidden, random)
    config = {
        "model": "digits-mlp",
        "optimizer": "sgd",
        "variant": f"hidden{args.hidden}",
        "steps": args.steps,
        "batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "momentum": args.momentum,
        "seed": args.seed,
        "data": {"train": len(train_labels), "val": len(val_labels)},
        "network": {"hidden": args.hidden, "parameters": sum(value.size for value in network.weights.values())},
    }
    best_loss, best_accuracy = math.inf, 0.0
    with tempfile.TemporaryDirectory() as folder, trackers.init_from_args(args, config=config) as run:
        checkpoint = Path(folder, "digits.npz")
        for step in range(1, args.steps + 1):
            rate = args.learning_rate * (1 + math.cos(math.pi * (step - 1) / args.steps)) / 2
            chosen = random.integers(len(train_labels), size=args.batch_size)
            loss, norm = network.train_step(train_images[chosen], train_labels[chosen], rate, args.momentum)
            run.log({"train_loss": loss, "learning_rate": rate, "gradient_norm": norm}, step=step)
            if step % args.eval_interval and step != args.steps:
                continue
            val_loss, predicted = network.evaluate(val_images, val_labels)
            accuracy = float((predicted == val_labels).mean())
            run.log({"val_loss": val_loss, "val_accuracy": accuracy}, step=step)
            run.log(
                {f"weights/{name}": trackers.Histogram(value) for name, value in network.weights.items()}, step=step
            )
            if val_loss < best_loss:
                best_loss, best_accuracy = val_loss, accuracy
                # The same file each time: the run keeps each version as it was when logged.
                np.savez(checkpoint, **network.weights)
                run.log_artifact(checkpoint, name="digits", type="model", metadata={"val_loss": val_loss, "step": step})
        _, predicted = network.evaluate(val_images, val_labels)
        misread = np.flatnonzero(predicted != val_labels)[:8]
        captions = [f"{val_labels[i]} read as {predicted[i]}" for i in misread]
        run.log({"samples/confusion": confusion(val_labels, predicted)}, step=args.steps)
        if len(misread):
            pictures = [
                trackers.Image(picture(val_images[i]), caption=text) for i, text in zip(misread, captions, strict=True)
            ]
            run.log({"samples/misread": pictures}, step=args.steps)
        run.log({"final/best_val_loss": best_loss, "final/best_val_accuracy": best_accuracy})
    print(f"best validation loss {best_loss:.4f}, accuracy {best_accuracy:.1%}")


if __name__ == "__main__":
    main()
