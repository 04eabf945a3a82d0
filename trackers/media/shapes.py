"""Objects in space: point clouds, models and molecules, kept as files; and graphs of layers."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.media.base import MediaStore, MediaValue
from trackers.media.image import as_numpy, existing, is_array
from trackers.records import MediaFile, name_floats

OBJECTS = ("obj", "gltf", "glb", "babylon", "stl", "pts.json")
"""Kinds of file that W&B's viewer shows (https://docs.wandb.ai/ref/python/data-types/object3d)."""
MOLECULES = ("pdb", "pqr", "mmcif", "mcif", "cif", "sdf", "sd", "gro", "mol2", "mmtf")
"""The same for molecules."""
CLOUD = "lidar/beta"


class _FileValue(MediaValue):
    """A value that is one file: of a path, an open file, or made here."""

    kinds: tuple[str, ...]

    def __init__(self, caption: str | None) -> None:
        self.caption = caption
        self._path: Path | None = None
        self._content = b""
        self.format = ""

    def _set_source(self, source: Any, file_type: Any) -> bool:
        """Take a path or an open file. Raises ValueError for a kind that isn't known."""
        named = getattr(source, "name", None)
        if isinstance(named, str) and hasattr(source, "read"):
            source = named
        name = type(self).__name__
        if isinstance(source, (str, os.PathLike)):
            path = existing(source, f"an {name}" if name[0] == "O" else f"a {name}")
            self.format = next((kind for kind in self.kinds if path.name.endswith(f".{kind}")), "")
            self._path = path
        elif hasattr(source, "read"):
            if hasattr(source, "seek"):
                source.seek(0)
            content = source.read()
            self._content = content.encode() if isinstance(content, str) else bytes(content)
            self.format = str(file_type) if file_type in self.kinds else ""
        else:
            return False
        if not self.format:
            what = self._path.name if self._path is not None else f"file_type={file_type!r}"
            raise UsageError(f"{name}: {what} is of no known kind: {', '.join(self.kinds)}")
        return True

    def items(self, store: MediaStore) -> list[MediaFile]:
        content = self._path.read_bytes() if self._path is not None else self._content
        return [MediaFile(format=self.format, file=store.put(content, self.format), caption=self.caption)]


class Object3D(_FileValue):
    """A point cloud or a model in space.

    Args:
        data_or_path: a file (obj, gltf, glb, babylon, stl, pts.json) or an open one with ``file_type``; an array of
            points, n x 3 (x, y, z), n x 4 (and a category from 1 to 14) or n x 6 (and a colour); or a mapping of type
            "lidar/beta" with points, boxes and vectors.
        caption: text shown with it.

    Raises:
        ValueError: none of these. FileNotFoundError: no such file.
    """

    type = "object3d"
    kinds = OBJECTS

    def __init__(self, data_or_path: Any, caption: str | None = None, **kwargs: Any) -> None:
        super().__init__(caption)
        if self._set_source(data_or_path, kwargs.get("file_type")):
            return
        if isinstance(data_or_path, Mapping):
            if data_or_path.get("type") != CLOUD:
                raise UsageError(f"Object3D: a mapping is of type {CLOUD!r}, not {data_or_path.get('type')!r}")
            parts = {name: _listed(data_or_path.get(name, [])) for name in ("vectors", "points", "boxes")}
            self._set_content({"type": CLOUD, **parts})
        elif is_array(data_or_path):
            points = as_numpy(data_or_path)
            if points.ndim != 2 or points.shape[1] not in (3, 4, 6):
                raise UsageError(f"Object3D: points are an array of n x 3, 4 or 6, not {tuple(points.shape)}")
            self._set_content(points.tolist())
        else:
            raise UsageError(
                f"Object3D takes a file, an array of points or a mapping, not {type(data_or_path).__name__}"
            )

    @classmethod
    def from_file(cls, data_or_path: Any, file_type: str | None = None) -> Object3D:
        """Of a path, or of an open file of a kind."""
        return cls(data_or_path, file_type=file_type)

    @classmethod
    def from_numpy(cls, data: Any) -> Object3D:
        """Of an array of points. Raises ValueError for anything else."""
        if not is_array(data):
            raise UsageError(f"Object3D.from_numpy takes an array, not {type(data).__name__}")
        return cls(data)

    @classmethod
    def from_point_cloud(
        cls,
        points: Sequence[Any],
        boxes: Sequence[Any],
        vectors: Sequence[Any] | None = None,
        point_cloud_type: str = CLOUD,
    ) -> Object3D:
        """Of points with boxes (:func:`box3d`) and vectors around them.

        Raises:
            ValueError: another type of point cloud.
        """
        return cls({"type": point_cloud_type, "points": points, "boxes": boxes, "vectors": vectors or []})

    def _set_content(self, content: Any) -> None:
        self._content = json.dumps(name_floats(content)).encode()
        self.format = "pts.json"


class Molecule(_FileValue):
    """A molecule.

    Args:
        data_or_path: a file (pdb, sdf, cif, mol2, …), or an open one with ``file_type``.
        caption: text shown with it.

    Raises:
        ValueError: another kind of file. FileNotFoundError: no such file.
    """

    type = "molecule"
    kinds = MOLECULES

    def __init__(self, data_or_path: Any, caption: str | None = None, **kwargs: Any) -> None:
        super().__init__(caption)
        if not self._set_source(data_or_path, kwargs.get("file_type")):
            raise UsageError(f"Molecule takes a file, not {type(data_or_path).__name__}")

    @classmethod
    def from_rdkit(
        cls,
        data_or_path: Any,
        caption: str | None = None,
        convert_to_3d_and_optimize: bool = True,
        mmff_optimize_molecule_max_iterations: int = 200,
    ) -> Molecule:
        """Of RDKit's molecule, or of a file that RDKit reads (mol, sdf).

        Raises:
            ImportError: RDKit isn't installed. ValueError: another kind of file, or RDKit can't read it.
        """
        import io

        from rdkit import Chem
        from rdkit.Chem import AllChem

        molecule = data_or_path
        if isinstance(data_or_path, (str, os.PathLike)):
            path = os.fspath(data_or_path)
            if not path.endswith((".mol", ".sdf")):
                raise UsageError(f"Molecule.from_rdkit: {path} is neither mol nor sdf")
            molecule = Chem.MolFromMolFile(path) if path.endswith(".mol") else next(iter(Chem.SDMolSupplier(path)))
            if molecule is None:
                raise UsageError(f"Molecule.from_rdkit: RDKit can't read {path}")
        if convert_to_3d_and_optimize:
            molecule = Chem.AddHs(molecule)
            AllChem.EmbedMolecule(molecule)
            AllChem.MMFFOptimizeMolecule(molecule, maxIters=mmff_optimize_molecule_max_iterations)
        return cls(io.StringIO(Chem.MolToPDBBlock(molecule)), caption=caption, file_type="pdb")

    @classmethod
    def from_smiles(
        cls,
        data: str,
        caption: str | None = None,
        sanitize: bool = True,
        convert_to_3d_and_optimize: bool = True,
        mmff_optimize_molecule_max_iterations: int = 200,
    ) -> Molecule:
        """Of a SMILES text, by RDKit.

        Raises:
            ImportError: RDKit isn't installed. ValueError: not a molecule.
        """
        from rdkit import Chem

        molecule = Chem.MolFromSmiles(data, sanitize=sanitize)
        if molecule is None:
            raise UsageError(f"Molecule.from_smiles: {data!r:.80} is no molecule")
        return cls.from_rdkit(molecule, caption, convert_to_3d_and_optimize, mmff_optimize_molecule_max_iterations)


def box3d(
    *, center: Any, size: Any, orientation: Any, color: Any, label: str | None = None, score: float | None = None
) -> dict[str, Any]:
    """A box around points, for ``Object3D.from_point_cloud``.

    Args:
        center, size: x, y, z. orientation: a quaternion r, i, j, k other than zero, by which the box is turned.
        color: red, green and blue.

    Raises:
        ValueError: not so many numbers.
    """
    import numpy as np

    middle, extent, turn = (np.asarray(value, dtype=np.float64) for value in (center, size, orientation))
    if middle.shape != (3,) or extent.shape != (3,) or turn.shape != (4,):
        raise UsageError("box3d: center and size are three numbers each, orientation is four")
    r, i, j, k = turn / np.linalg.norm(turn)
    # Rotates row vectors: https://en.wikipedia.org/wiki/Quaternions_and_spatial_rotation, transposed.
    matrix = np.array(
        [
            [1 - 2 * (j * j + k * k), 2 * (i * j + k * r), 2 * (i * k - j * r)],
            [2 * (i * j - k * r), 1 - 2 * (i * i + k * k), 2 * (j * k + i * r)],
            [2 * (i * k + j * r), 2 * (j * k - i * r), 1 - 2 * (i * i + j * j)],
        ]
    )
    corners = middle + (0.5 * extent * np.array(list(itertools.product((-1, 1), repeat=3)))) @ matrix
    return {"corners": tuple(map(tuple, corners.tolist())), "color": color, "label": label, "score": score}


class Graph(MediaValue):
    """Layers of a model and how they are connected, kept as JSON: ``{"format", "nodes", "edges"}``."""

    type = "graph"

    def __init__(self, format: str = "keras") -> None:
        self.format = format
        self.nodes: list[Any] = []
        self.nodes_by_id: dict[Any, Any] = {}
        self.edges: list[tuple[Any, Any]] = []

    def __getitem__(self, nid: Any) -> Any:
        return self.nodes_by_id[nid]

    def add_node(self, node: Any = None, **node_kwargs: Any) -> Any:
        """Add a node: a mapping, or its fields (id, name, class_name, output_shape, parameters, …)."""
        made = dict(node_kwargs) if node is None else node
        self.nodes.append(made)
        self.nodes_by_id[_id(made)] = made
        return made

    def add_edge(self, from_node: Any, to_node: Any) -> tuple[Any, Any]:
        """Connect two nodes."""
        self.edges.append((from_node, to_node))
        return self.edges[-1]

    @classmethod
    def from_keras(cls, model: Any) -> Graph:
        """The layers of a Keras model, one after the other."""
        made = cls("keras")
        before = None
        for layer in model.layers:
            fields = {"id": layer.name, "name": layer.name, "class_name": type(layer).__name__}
            shape = getattr(getattr(layer, "output", None), "shape", None)
            node = made.add_node(**fields, output_shape=None if shape is None else list(shape))
            if before is not None:
                made.add_edge(before, node)
            before = node
        return made

    def items(self, store: MediaStore) -> list[MediaFile]:
        graph = {
            "format": self.format,
            "nodes": [_fields(node) for node in self.nodes],
            "edges": [[_id(begin), _id(end)] for begin, end in self.edges],
        }
        content = json.dumps(name_floats(graph), default=str).encode()
        return [MediaFile(format="json", file=store.put(content, "json"))]


def _fields(node: Any) -> dict[str, Any]:
    fields = node if isinstance(node, Mapping) else getattr(node, "_attributes", None) or vars(node)
    return {str(name): value for name, value in fields.items() if value is not None}


def _id(node: Any) -> Any:
    return node.get("id", id(node)) if isinstance(node, Mapping) else getattr(node, "id", id(node))


def _listed(value: Any) -> Any:
    if is_array(value):
        return as_numpy(value).tolist()
    if isinstance(value, Mapping):
        return {str(name): _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value
