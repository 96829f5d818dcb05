"""Street scenes drawn by arithmetic, for segmentation without a download: road, pavement, buildings, sky, plants, cars, and few small poles and people."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt

from codline.data import masks
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec, Task

CLASSES = ("road", "pavement", "building", "sky", "vegetation", "car", "pole", "person")
ROAD, PAVEMENT, BUILDING, SKY, VEGETATION, CAR, POLE, PERSON = range(len(CLASSES))
ROUGHNESS = np.array([7, 6, 5, 2, 20, 4, 3, 6], np.int32)  # of each class's texture
FINE = 2  # drawn at twice the size: a pixel that two classes share has no truth
ONE = 256  # fractions are in 256ths, for integers give the same bits on every machine

Colour = tuple[int, int, int]
Rng = np.random.Generator


class Streets(DatasetSpec):
    name: Literal["streets"] = "streets"
    task: ClassVar[Task] = "segmentation"
    count: int = Field(default=600, ge=2)
    height: int = Field(default=64, ge=16)
    width: int = Field(default=96, ge=16)
    test: float = Field(default=0.2, gt=0, lt=1)
    town: NonNegativeInt = 0  # another number, other streets

    def load(self, rng: Rng) -> RawDataset:
        scenes = [
            Scene(np.random.default_rng([self.town, i]), self.height, self.width).finished() for i in range(self.count)
        ]
        is_test = np.zeros(self.count, bool)
        is_test[rng.permutation(self.count)[: round(self.test * self.count)]] = True
        return RawDataset(
            np.stack([image for image, _ in scenes]), [masks.encoded(mask) for _, mask in scenes], is_test, CLASSES
        )


@dataclass(frozen=True)
class Light:
    zenith: Colour
    horizon: Colour
    tint: Colour
    shadows: bool = False
    lamps: bool = False


LIGHTS = (
    Light((64, 122, 196), (190, 214, 236), (256, 250, 240), shadows=True),
    Light((98, 150, 206), (214, 226, 236), (250, 248, 244), shadows=True),
    Light((146, 154, 166), (206, 209, 213), (212, 218, 226)),
    Light((92, 108, 164), (250, 196, 138), (256, 222, 184), shadows=True),
    Light((24, 32, 70), (126, 96, 116), (146, 144, 176), lamps=True),
)
WALLS: tuple[Colour, ...] = (
    (176, 148, 122),
    (150, 92, 76),
    (198, 186, 164),
    (128, 124, 126),
    (168, 160, 150),
    (186, 152, 96),
    (112, 104, 112),
)
PAINTS: tuple[Colour, ...] = (
    (182, 34, 36),
    (40, 74, 150),
    (226, 226, 228),
    (34, 36, 42),
    (140, 144, 150),
    (212, 168, 44),
    (44, 110, 84),
    (236, 120, 40),
)
CLOTHES: tuple[Colour, ...] = (
    (200, 50, 60),
    (240, 200, 60),
    (60, 90, 190),
    (230, 230, 230),
    (50, 50, 60),
    (120, 60, 140),
    (60, 150, 90),
)
SKINS: tuple[Colour, ...] = ((236, 200, 172), (198, 148, 112), (126, 84, 60))


def corners(fine: np.ndarray) -> list[np.ndarray]:
    """Of each block of FINE by FINE pixels the first, the second and so on."""
    return [fine[i::FINE, j::FINE] for i in range(FINE) for j in range(FINE)]


class Scene:
    """One street from the driver's seat. A thing's scale is ONE at the lower edge of the image and none at the horizon, and `unit` is the camera's height."""

    def __init__(self, rng: Rng, height: int, width: int) -> None:
        self.rng, self.H, self.W = rng, FINE * height, FINE * width
        self.colour, self.label = np.zeros((self.H, self.W, 3), np.int32), np.full((self.H, self.W), SKY, np.uint8)
        self.y, self.x = np.arange(self.H)[:, None], np.arange(self.W)[None]
        self.light = LIGHTS[self.between(0, len(LIGHTS) - 1)]
        self.eye, self.vanishing = self.share(self.H, 32, 50), self.share(self.W, 22, 78)
        self.unit = self.H - self.eye
        self.road = (
            self.share(self.unit, 115, 165),
            self.share(self.unit, 115, 165),
        )  # from the middle to the left and the right kerb
        self.walk = tuple(half + self.share(self.unit, 35, 80) for half in self.road)
        self.sunny = self.between(0, 1)
        self.draw()

    def draw(self) -> None:
        self.sky()
        self.skyline()
        self.ground()
        for side in (0, 1):
            self.row(side)
        for _, paint in sorted(
            self.things(), key=lambda thing: thing[0]
        ):  # what is far is drawn first, and hidden by what is near
            paint()

    def finished(self) -> tuple[np.ndarray, np.ndarray]:
        """The image (channels, height, width) and its mask."""
        coarse = (
            self.rng.integers(-8, 9, (-(-self.H // 4), -(-self.W // 4)), np.int32)
            .repeat(4, 0)
            .repeat(4, 1)[: self.H, : self.W]
        )
        texture = (coarse + self.rng.integers(-8, 9, (self.H, self.W), np.int32)) * ROUGHNESS[self.label] // 10
        exposure = self.between(190, 280)
        lit = (self.colour + texture[..., None]) * np.array(self.light.tint, np.int32) // ONE * exposure // ONE
        image = sum(corners(lit.clip(0, 255)), np.zeros(3, np.int32)) // FINE**2
        image += self.rng.integers(-3, 4, image.shape, np.int32)
        first, *others = corners(self.label)
        mask = np.where(np.logical_and.reduce([first == other for other in others]), first, 255)
        return np.ascontiguousarray(image.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)), mask.astype(np.uint8)

    # What every part needs

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def share(self, whole: int, low: int, high: int) -> int:
        """From `low` to `high` per cent of the whole."""
        return whole * self.between(low, high) // 100

    def one_of(self, choices: tuple[Colour, ...]) -> Colour:
        return choices[self.between(0, len(choices) - 1)]

    def hazy(self, colour: tuple[int, ...], scale: int) -> np.ndarray:
        near = min(ONE, 120 + 2 * scale)
        found: np.ndarray = (np.array(colour) * near + np.array(self.light.horizon) * (ONE - near)) // ONE
        return found

    def box(self, left: int, top: int, right: int, bottom: int, colour: np.ndarray, label: int) -> None:
        area = slice(max(top, 0), max(bottom, 0)), slice(max(left, 0), max(right, 0))
        self.colour[area], self.label[area] = colour, label

    def oval(self, x: int, y: int, rx: int, ry: int, colour: np.ndarray, label: int) -> None:
        area, inside = self.ellipse(x, y, max(rx, 1), max(ry, 1))
        self.colour[area][inside], self.label[area][inside] = colour, label

    def shadow(self, x: int, y: int, rx: int, ry: int) -> None:
        area, inside = self.ellipse(x, y, max(rx, 1), max(ry, 1))
        self.colour[area][inside] = self.colour[area][inside] * 5 // 9

    def ellipse(self, x: int, y: int, rx: int, ry: int) -> tuple[tuple[slice, slice], np.ndarray]:
        """The rows and columns that it touches, and which of the pixels there lie within."""
        rows, columns = slice(max(y - ry, 0), max(y + ry + 1, 0)), slice(max(x - rx, 0), max(x + rx + 1, 0))
        return (rows, columns), ((self.x[:, columns] - x) * ry) ** 2 + ((self.y[rows] - y) * rx) ** 2 <= (rx * ry) ** 2

    # What does not move

    def sky(self) -> None:
        down = (self.y * ONE // self.eye).clip(0, ONE)[..., None]
        self.colour[:] = (np.array(self.light.zenith) * (ONE - down) + np.array(self.light.horizon) * down) // ONE
        cloud = np.array(
            [
                (a + 3 * b) // 4
                for a, b in zip(
                    self.light.zenith, (250, 248, 246) if not self.light.lamps else self.light.horizon, strict=True
                )
            ]
        )
        for _ in range(self.between(0, 4)):
            x, y = self.between(0, self.W), self.share(self.eye, 5, 60)
            for _ in range(4):
                self.oval(
                    x + self.share(self.W, -9, 9),
                    y + self.share(self.eye, -4, 4),
                    self.share(self.W, 3, 9),
                    self.share(self.eye, 3, 7),
                    cloud,
                    SKY,
                )

    def skyline(self) -> None:
        """Roofs and trees where the street ends."""
        x = 0
        while x < self.W:
            wide, high = self.share(self.W, 3, 8), self.share(self.unit, 4, 22)
            if self.between(0, 2):
                self.box(x, self.eye - high, x + wide, self.eye + 1, self.hazy(self.one_of(WALLS), 8), BUILDING)
            else:
                self.oval(x + wide // 2, self.eye, wide, high, self.hazy((70, 104, 62), 8), VEGETATION)
            x += wide

    def ground(self) -> None:
        depth = (self.y - self.eye).clip(0)
        across = (self.x - self.vanishing) * self.unit
        away = self.unit * 64 // depth.clip(1)  # 64 at the lower edge of the image
        below = np.broadcast_to(depth > 0, self.label.shape)
        asphalt, stone, grass = self.between(66, 104), self.between(132, 176), self.between(84, 116)
        self.lay(below, (grass - 26, grass, 52), VEGETATION)
        walk = below & (across >= -self.walk[0] * depth) & (across <= self.walk[1] * depth)
        self.lay(walk, (stone, stone - 4, stone - 10), PAVEMENT)
        slab = self.share(self.unit, 30, 44)
        self.lay(
            walk & ((away % 24 < 3) | (across // depth.clip(1) % slab < 3)) & (depth > self.unit // 5),
            (stone - 26, stone - 28, stone - 32),
            PAVEMENT,
        )
        road = below & (across >= -self.road[0] * depth) & (across <= self.road[1] * depth)
        self.lay(road, (asphalt, asphalt, asphalt + 4), ROAD)
        kerb = road & ((across <= -(self.road[0] * 96 // 100) * depth) | (across >= self.road[1] * 96 // 100 * depth))
        self.lay(kerb, (asphalt + 48,) * 3, ROAD)
        self.stripe(road, across, depth, away)
        self.shade(below, across, depth)

    def stripe(self, road: np.ndarray, across: np.ndarray, depth: np.ndarray, away: np.ndarray) -> None:
        """A dashed line in the middle, sometimes a crossing for those on foot."""
        middle, half = (self.road[1] - self.road[0]) // 2, self.unit * 3 // 100
        dashed = (away + self.between(0, 47)) % 48 < 26
        self.lay(
            road & dashed & (across >= (middle - half) * depth) & (across <= (middle + half) * depth),
            (222, 220, 208),
            ROAD,
        )
        if self.between(0, 5) == 0:
            start, bar = self.between(76, 150), self.share(self.unit, 26, 34)
            crossing = road & (away >= start) & (away < start + 44)
            self.lay(crossing & (across // depth.clip(1) % bar < bar // 2), (216, 214, 206), ROAD)

    def shade(self, below: np.ndarray, across: np.ndarray, depth: np.ndarray) -> None:
        """The houses opposite to the sunny ones keep the sun off."""
        if self.light.shadows:
            edge = self.share(self.road[1 - self.sunny], 10, 95)
            shady = across <= -edge * depth if self.sunny else across >= edge * depth
            self.colour[below & shady] = self.colour[below & shady] * 3 // 5

    def lay(self, where: np.ndarray, colour: Colour, label: int) -> None:
        self.colour[where], self.label[where] = colour, label

    def row(self, side: int) -> None:
        """Houses, or now and then a hedge, along the outer edge of a pavement, from the far end to the near one."""
        away = (self.x[0] - self.vanishing) * (1 if side else -1)
        scale = (away * ONE // self.walk[side]).clip(0)
        start, leafy = 14, self.between(0, 99) < 22
        while start < scale.max():
            end = start * self.between(122, 185) // 100 + 1
            found = np.flatnonzero((scale >= start) & (scale < end))
            columns = slice(found[0], found[-1] + 1) if found.size else slice(0)
            if leafy or self.between(0, 99) < 12:
                self.hedge(columns, scale[columns])
            else:
                self.house(columns, scale[columns], bright=side == self.sunny)
            start = end

    def hedge(self, columns: slice, scale: np.ndarray) -> None:
        if scale.size:
            high = self.share(self.unit, 50, 130) + self.rng.integers(-self.unit // 12, self.unit // 12 + 1, scale.size)
            where = (self.y >= self.eye - (high - self.unit) * scale // ONE) & (
                self.y < self.eye + self.unit * scale // ONE
            )
            self.fill(columns, where, self.hazy((62, 100, 50), int(scale.max())), VEGETATION)

    def house(self, columns: slice, scale: np.ndarray, *, bright: bool) -> None:
        if not scale.size:
            return
        high, storey, bay = (
            self.share(self.unit, 180, 560),
            self.share(self.unit, 78, 104),
            self.share(self.unit, 56, 96),
        )
        foot = self.eye + self.unit * scale // ONE
        above = (
            (foot - self.y) * ONE // scale.clip(1)
        )  # height above the pavement, as it would be at the lower edge of the image
        along = 2 * self.W * ONE // scale.clip(1)
        wall = tuple(channel * (118 if bright else 84) // 100 for channel in self.one_of(WALLS))
        near = int(scale.max())
        inside = (above > 0) & (above <= high)
        self.fill(columns, inside, self.hazy(wall, near), BUILDING)
        glass = (
            (above % storey > storey * 30 // 100)
            & (above % storey < storey * 78 // 100)
            & (along % bay > bay * 24 // 100)
            & (above < high * 94 // 100)
        )
        shop = (
            (above < storey)
            & (above > storey * 14 // 100)
            & (above < storey * 80 // 100)
            & (along % (2 * bay) > bay * 20 // 100)
        )
        panes = inside & (glass & (above > storey) | shop) & (scale > 26)
        lit = self.light.lamps & ((along // bay * 7 + above // storey * 5 + high) % 3 != 0)
        self.fill(columns, panes & ~lit, self.hazy((62, 74, 92), near), BUILDING)
        self.fill(columns, panes & lit, np.array((510, 420, 210)), BUILDING)
        self.fill(
            columns,
            inside & (above > high - self.unit // 12),
            self.hazy(tuple(c * 6 // 10 for c in wall), near),
            BUILDING,
        )

    def fill(self, columns: slice, where: np.ndarray, colour: np.ndarray, label: int) -> None:
        self.colour[:, columns][where], self.label[:, columns][where] = colour, label

    # What stands on the ground

    def things(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Each with its scale, in no order."""
        for side in (0, 1):
            yield from self.lamps(side)
            yield from self.trees(side)
            yield from self.parked(side)
        for _ in range(self.between(0, 3)):
            yield self.placed(self.car, self.lane(), 30, 190)
        for _ in range(max(0, self.between(-2, 4))):
            yield self.placed(self.person, self.beside(self.between(0, 1), 20, 85), 50, 220)
        if self.between(0, 7) == 0:
            yield self.placed(self.person, self.share(self.unit, -80, 80), 50, 130)

    def placed(
        self, paint: Callable[[int, int, int], None], across: int, far: int, near: int
    ) -> tuple[int, Callable[[], None]]:
        """Somewhere between two scales: evenly in depth, so mostly far away."""
        scale = ONE * ONE // self.between(ONE * ONE // near, ONE * ONE // far)
        return self.at(paint, across, scale)

    def at(self, paint: Callable[[int, int, int], None], across: int, scale: int) -> tuple[int, Callable[[], None]]:
        x, y = self.vanishing + across * scale // ONE, self.eye + self.unit * scale // ONE
        return scale, lambda: paint(x, y, scale)

    def beside(self, side: int, low: int, high: int) -> int:
        """A place on the pavement: 0 is at the kerb, 100 at the houses."""
        place = self.road[side] + self.share(self.walk[side] - self.road[side], low, high)
        return place if side else -place

    def lane(self) -> int:
        side = self.between(0, 1)
        where = self.share(self.road[side], 32, 48)
        return where if side else -where

    def lamps(self, side: int) -> Iterator[tuple[int, Callable[[], None]]]:
        away, step, place = self.between(ONE + 40, 2 * ONE), self.between(ONE, 3 * ONE), self.beside(side, 6, 14)
        for number in range(self.between(0, 2)):
            yield self.at(self.pole, place, ONE * ONE // (away + number * step))

    def parked(self, side: int) -> Iterator[tuple[int, Callable[[], None]]]:
        if self.between(0, 2) == 0:
            away, step, place = (
                self.between(ONE, 3 * ONE),
                self.between(ONE * 3 // 4, ONE * 5 // 4),
                self.road[side] - self.unit * 43 // 100,
            )
            for number in range(self.between(1, 5)):
                yield self.at(self.car, place if side else -place, ONE * ONE // (away + number * step))

    def trees(self, side: int) -> Iterator[tuple[int, Callable[[], None]]]:
        if self.between(0, 2):
            away, step, place = self.between(ONE + 60, 3 * ONE), self.between(ONE, 2 * ONE), self.beside(side, 60, 130)
            for number in range(self.between(1, 4)):
                yield self.at(self.tree, place, ONE * ONE // (away + number * step))

    def car(self, x: int, y: int, scale: int) -> None:
        """From behind on the right, from the front on the left."""
        high, half = self.unit * 66 * scale // 100 // ONE, self.unit * 40 * scale // 100 // ONE
        paint, rear = self.hazy(self.one_of(PAINTS), scale), x > self.vanishing
        dark, glass = self.hazy((26, 26, 30), scale), self.hazy((70, 86, 104), scale)
        self.shadow(x, y, half * 12 // 10 + 1, high // 7 + 1)
        for wheel in (x - half, x + half - half * 4 // 10):
            self.box(wheel, y - high // 5, wheel + half * 4 // 10 + 1, y + high // 20 + 1, dark, CAR)
        self.box(x - half, y - high * 58 // 100, x + half + 1, y - high // 9, paint, CAR)
        for row in range(high * 42 // 100):  # the cabin narrows towards the roof
            inset = half * (14 + row * 26 // max(high * 42 // 100, 1)) // 100
            level = y - high * 58 // 100 - row
            self.box(x - half + inset, level - 1, x + half - inset + 1, level, paint, CAR)
            if high * 5 // 100 < row < high * 34 // 100:
                self.box(x - half + inset * 3 // 2, level - 1, x + half - inset * 3 // 2 + 1, level, glass, CAR)
        bright = (
            np.array((300, 40, 30) if rear else (340, 330, 280))
            if self.light.lamps
            else self.hazy((210, 30, 30) if rear else (240, 236, 214), scale)
        )
        for lamp in (x - half, x + half - half * 30 // 100):
            self.box(lamp, y - high * 48 // 100, lamp + half * 30 // 100 + 1, y - high * 36 // 100, bright, CAR)
        self.box(
            x - half * 3 // 10,
            y - high * 30 // 100,
            x + half * 3 // 10,
            y - high * 20 // 100,
            self.hazy((226, 222, 200), scale),
            CAR,
        )

    def person(self, x: int, y: int, scale: int) -> None:
        high = self.unit * self.between(68, 84) * scale // 100 // ONE
        half, head = max(high * 13 // 100, 1), max(high * 9 // 100, 1)
        coat, legs, skin = (self.hazy(self.one_of(choice), scale) for choice in (CLOTHES, CLOTHES[2:5], SKINS))
        stride = self.between(0, half)
        self.shadow(x, y, half + 1, max(high // 16, 1))
        self.box(x - half + 1 - stride // 2, y - high * 50 // 100, x + 1 - stride // 2, y, legs, PERSON)
        self.box(x + stride // 2, y - high * 50 // 100, x + half + stride // 2, y, legs, PERSON)
        self.box(x - half, y - high * 82 // 100, x + half + 1, y - high * 42 // 100, coat, PERSON)
        self.oval(x, y - high + head, head, head, skin, PERSON)

    def pole(self, x: int, y: int, scale: int) -> None:
        high, half = self.unit * 270 * scale // 100 // ONE, self.unit * 2 * scale // 100 // ONE
        grey, arm = self.hazy((84, 88, 92), scale), self.unit * 34 * scale // 100 // ONE
        left = (x - half) // FINE * FINE  # thin as it is, it has some pixels to itself
        self.box(left, y - high, left + (2 * half // FINE + 1) * FINE, y, grey, POLE)
        inwards = -1 if x > self.vanishing else 1
        left, right = sorted((x, x + inwards * arm))
        self.box(left, y - high - half, right + 1, y - high + half + 1, grey, POLE)
        glow = np.array((520, 470, 330)) if self.light.lamps else self.hazy((214, 214, 204), scale)
        tip = x + inwards * arm
        self.box(tip - 2 * half - 1, y - high + half, tip + 2 * half + 2, y - high + 3 * half + 2, glow, POLE)

    def tree(self, x: int, y: int, scale: int) -> None:
        high, half = (
            self.unit * self.between(150, 260) * scale // 100 // ONE,
            max(self.unit * 6 * scale // 100 // ONE, 1),
        )
        self.box(x - half, y - high * 60 // 100, x + half + 1, y, self.hazy((86, 64, 46), scale), VEGETATION)
        green, crown = self.between(88, 132), high * 34 // 100
        for part in range(7):
            leaf = self.hazy((green - 44 + 3 * part, green - 12 + 5 * part, 40 + 2 * part), scale)
            dx, dy = self.share(crown, -62, 62), self.share(crown, -55, 55) - part * crown // 14
            self.oval(
                x + dx,
                y - high * 70 // 100 + dy,
                self.share(crown, 42, 66),
                self.share(crown, 36, 56),
                leaf,
                VEGETATION,
            )
