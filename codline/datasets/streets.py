"""Synthetic street scenes, for segmentation without a download: 8 classes, poles and people being rare."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt

from codline.data import masks
from codline.data.draws import draw, draw_key
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec, Task

CLASSES = ("road", "pavement", "building", "sky", "vegetation", "car", "pole", "person")
ROAD, PAVEMENT, BUILDING, SKY, VEGETATION, CAR, POLE, PERSON = range(len(CLASSES))
ROUGHNESS = np.array([7, 6, 5, 2, 20, 4, 3, 6], np.int32)  # strength of the texture of each class
SUPERSAMPLING = 2  # drawn at twice the size; a final pixel that covers two classes is unlabeled
ONE = 256  # fractions are integers in 256ths: integer arithmetic gives the same bits on every machine

Color = tuple[int, int, int]
DrawObject = Callable[[int, int, int], None]  # x and y of its foot, and its scale
ScaledDrawing = tuple[int, Callable[[], None]]


class Streets(DatasetSpec):
    name: Literal["streets"] = "streets"
    task: ClassVar[Task] = "segmentation"
    count: int = Field(default=600, ge=2)
    height: int = Field(default=64, ge=16)
    width: int = Field(default=96, ge=16)
    test: float = Field(default=0.2, gt=0, lt=1)
    town: NonNegativeInt = 0  # seed of the scenes

    def load(self, rng: np.random.Generator) -> RawDataset:
        generators = (np.random.default_rng([self.town, i]) for i in range(self.count))
        scenes = [Scene(generator, self.height, self.width).render() for generator in generators]
        images, labels = np.stack([image for image, _ in scenes]), [masks.encode_mask(mask) for _, mask in scenes]
        ids, strata = np.arange(self.count), np.zeros(self.count, np.int32)
        is_test = draw(self.test, ids, strata, draw_key(rng), by_content=False)
        return RawDataset(images, labels, is_test, CLASSES)


@dataclass(frozen=True)
class Light:
    zenith: Color
    horizon: Color
    tint: Color
    shadows: bool = False
    lamps: bool = False


LIGHTS = (
    Light((64, 122, 196), (190, 214, 236), (256, 250, 240), shadows=True),
    Light((98, 150, 206), (214, 226, 236), (250, 248, 244), shadows=True),
    Light((146, 154, 166), (206, 209, 213), (212, 218, 226)),
    Light((92, 108, 164), (250, 196, 138), (256, 222, 184), shadows=True),
    Light((24, 32, 70), (126, 96, 116), (146, 144, 176), lamps=True),
)


def palette(hex_colors: str) -> list[tuple[int, ...]]:
    return [tuple(bytes.fromhex(color)) for color in hex_colors.split()]


WALLS = palette("b0947a 965c4c c6baa4 807c7e a8a096 ba9860 706870")
CAR_PAINTS = palette("b62224 284a96 e2e2e4 22242a 8c9096 d4a82c 2c6e54 ec7828")
CLOTHES = palette("c8323c f0c83c 3c5abe e6e6e6 32323c 783c8c 3c965a")
SKINS = palette("ecc8ac c69470 7e543c")


def subpixels(canvas: np.ndarray) -> list[np.ndarray]:
    """The supersampled canvas as SUPERSAMPLING ** 2 images of the final size."""
    return [canvas[i::SUPERSAMPLING, j::SUPERSAMPLING] for i in range(SUPERSAMPLING) for j in range(SUPERSAMPLING)]


class Scene:
    """One street, seen by a driver.

    Scales run from 0 at the horizon to ONE at the lower edge of the image. `unit` is the height of the camera above the
    ground at scale ONE, in pixels; lateral positions are given at scale ONE too, relative to the vanishing point.
    Sides are 0 (left) and 1 (right).
    """

    def __init__(self, rng: np.random.Generator, height: int, width: int) -> None:
        self.rng, self.height, self.width = rng, SUPERSAMPLING * height, SUPERSAMPLING * width
        self.color = np.zeros((self.height, self.width, 3), np.int32)
        self.label = np.full((self.height, self.width), SKY, np.uint8)
        self.y, self.x = np.arange(self.height)[:, None], np.arange(self.width)[None]
        self.light = LIGHTS[self.randint(0, len(LIGHTS) - 1)]
        self.horizon, self.vanishing = self.percent(self.height, 32, 50), self.percent(self.width, 22, 78)
        self.unit = self.height - self.horizon
        # Distances of the kerbs and of the houses from the middle, left and right.
        self.road = self.percent(self.unit, 115, 165), self.percent(self.unit, 115, 165)
        self.walk = tuple(half + self.percent(self.unit, 35, 80) for half in self.road)
        self.sunny_side = self.randint(0, 1)
        self.draw()

    def draw(self) -> None:
        self.draw_sky()
        self.draw_skyline()
        self.draw_ground()
        for side in (0, 1):
            self.draw_houses(side)
        for _, draw_object in sorted(self.objects(), key=lambda item: item[0]):  # near objects hide far ones
            draw_object()

    def render(self) -> tuple[np.ndarray, np.ndarray]:
        """The image, uint8 (channels, height, width), and its mask, uint8 (height, width)."""
        coarse = self.rng.integers(-8, 9, (-(-self.height // 4), -(-self.width // 4)), np.int32)
        coarse = coarse.repeat(4, 0).repeat(4, 1)[: self.height, : self.width]
        fine = self.rng.integers(-8, 9, (self.height, self.width), np.int32)
        texture = (coarse + fine) * ROUGHNESS[self.label] // 10
        exposure = self.randint(190, 280)
        lit = (self.color + texture[..., None]) * np.array(self.light.tint, np.int32) // ONE * exposure // ONE
        image = sum(subpixels(lit.clip(0, 255)), np.zeros(3, np.int32)) // SUPERSAMPLING**2
        image += self.rng.integers(-3, 4, image.shape, np.int32)
        first, *others = subpixels(self.label)
        mask = np.where(np.logical_and.reduce([first == other for other in others]), first, 255)
        return np.ascontiguousarray(image.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)), mask.astype(np.uint8)

    # Random numbers, colors and shapes

    def randint(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def percent(self, whole: int, low: int, high: int) -> int:
        """Between `low` and `high` per cent of `whole`."""
        return whole * self.randint(low, high) // 100

    def choice(self, colors: list[tuple[int, ...]]) -> tuple[int, ...]:
        return colors[self.randint(0, len(colors) - 1)]

    def hazy(self, color: tuple[int, ...], scale: int) -> np.ndarray:
        nearness = min(ONE, 120 + 2 * scale)
        mixed: np.ndarray = (np.array(color) * nearness + np.array(self.light.horizon) * (ONE - nearness)) // ONE
        return mixed

    def paint(self, where: np.ndarray, color: np.ndarray | Color, label: int, columns: slice = slice(None)) -> None:
        self.color[:, columns][where], self.label[:, columns][where] = color, label

    def box(self, left: int, top: int, right: int, bottom: int, color: np.ndarray, label: int) -> None:
        area = slice(max(top, 0), max(bottom, 0)), slice(max(left, 0), max(right, 0))
        self.color[area], self.label[area] = color, label

    def oval(self, x: int, y: int, rx: int, ry: int, color: np.ndarray, label: int) -> None:
        area, inside = self.ellipse(x, y, max(rx, 1), max(ry, 1))
        self.color[area][inside], self.label[area][inside] = color, label

    def shadow(self, x: int, y: int, rx: int, ry: int) -> None:
        area, inside = self.ellipse(x, y, max(rx, 1), max(ry, 1))
        self.color[area][inside] = self.color[area][inside] * 5 // 9

    def ellipse(self, x: int, y: int, rx: int, ry: int) -> tuple[tuple[slice, slice], np.ndarray]:
        """Its bounding box, and which pixels of that are inside."""
        rows, columns = slice(max(y - ry, 0), max(y + ry + 1, 0)), slice(max(x - rx, 0), max(x + rx + 1, 0))
        return (rows, columns), ((self.x[:, columns] - x) * ry) ** 2 + ((self.y[rows] - y) * rx) ** 2 <= (rx * ry) ** 2

    # Background

    def draw_sky(self) -> None:
        zenith, horizon = np.array(self.light.zenith), np.array(self.light.horizon)
        down = (self.y * ONE // self.horizon).clip(0, ONE)[..., None]
        self.color[:] = (zenith * (ONE - down) + horizon * down) // ONE
        cloud = (zenith + 3 * (horizon if self.light.lamps else np.array((250, 248, 246)))) // 4
        for _ in range(self.randint(0, 4)):
            x, y = self.randint(0, self.width), self.percent(self.horizon, 5, 60)
            for _ in range(4):
                cloud_x, cloud_y = x + self.percent(self.width, -9, 9), y + self.percent(self.horizon, -4, 4)
                rx, ry = self.percent(self.width, 3, 9), self.percent(self.horizon, 3, 7)
                self.oval(cloud_x, cloud_y, rx, ry, cloud, SKY)

    def draw_skyline(self) -> None:
        """Roofs and trees at the end of the street."""
        x = 0
        while x < self.width:
            width, height = self.percent(self.width, 3, 8), self.percent(self.unit, 4, 22)
            if self.randint(0, 2):
                wall = self.hazy(self.choice(WALLS), 8)
                self.box(x, self.horizon - height, x + width, self.horizon + 1, wall, BUILDING)
            else:
                self.oval(x + width // 2, self.horizon, width, height, self.hazy((70, 104, 62), 8), VEGETATION)
            x += width

    def draw_ground(self) -> None:
        depth = (self.y - self.horizon).clip(0)
        across = (self.x - self.vanishing) * self.unit
        distance = self.unit * 64 // depth.clip(1)  # 64 at the lower edge of the image
        ground = np.broadcast_to(depth > 0, self.label.shape)
        asphalt, stone, grass = self.randint(66, 104), self.randint(132, 176), self.randint(84, 116)
        self.paint(ground, (grass - 26, grass, 52), VEGETATION)
        walk = ground & (across >= -self.walk[0] * depth) & (across <= self.walk[1] * depth)
        self.paint(walk, (stone, stone - 4, stone - 10), PAVEMENT)
        slab = self.percent(self.unit, 30, 44)
        joints = ((distance % 24 < 3) | (across // depth.clip(1) % slab < 3)) & (depth > self.unit // 5)
        self.paint(walk & joints, (stone - 26, stone - 28, stone - 32), PAVEMENT)
        road = ground & (across >= -self.road[0] * depth) & (across <= self.road[1] * depth)
        self.paint(road, (asphalt, asphalt, asphalt + 4), ROAD)
        kerb = (across <= -(self.road[0] * 96 // 100) * depth) | (across >= self.road[1] * 96 // 100 * depth)
        self.paint(road & kerb, (asphalt + 48, asphalt + 48, asphalt + 48), ROAD)
        self.draw_markings(road, across, depth, distance)
        if self.light.shadows:  # of the houses opposite to the sunny ones
            edge = self.percent(self.road[1 - self.sunny_side], 10, 95)
            shady = ground & (across <= -edge * depth if self.sunny_side else across >= edge * depth)
            self.color[shady] = self.color[shady] * 3 // 5

    def draw_markings(self, road: np.ndarray, across: np.ndarray, depth: np.ndarray, distance: np.ndarray) -> None:
        """A dashed line in the middle, sometimes a zebra crossing."""
        middle, half = (self.road[1] - self.road[0]) // 2, self.unit * 3 // 100
        dashed = (distance + self.randint(0, 47)) % 48 < 26
        line = (across >= (middle - half) * depth) & (across <= (middle + half) * depth)
        self.paint(road & dashed & line, (222, 220, 208), ROAD)
        if self.randint(0, 5) == 0:
            start, bar = self.randint(76, 150), self.percent(self.unit, 26, 34)
            crossing = road & (distance >= start) & (distance < start + 44)
            self.paint(crossing & (across // depth.clip(1) % bar < bar // 2), (216, 214, 206), ROAD)

    def draw_houses(self, side: int) -> None:
        """Houses and some hedges along the outer edge of the pavement, from far to near."""
        across = (self.x[0] - self.vanishing) * (1 if side else -1)
        scale = (across * ONE // self.walk[side]).clip(0)
        start, mostly_hedges = 14, self.randint(0, 99) < 22
        while start < scale.max():
            end = start * self.randint(122, 185) // 100 + 1
            covered = np.flatnonzero((scale >= start) & (scale < end))
            columns = slice(covered[0], covered[-1] + 1) if covered.size else slice(0)
            if mostly_hedges or self.randint(0, 99) < 12:
                self.draw_hedge(columns, scale[columns])
            else:
                self.draw_house(columns, scale[columns], sunny=side == self.sunny_side)
            start = end

    def draw_hedge(self, columns: slice, scale: np.ndarray) -> None:
        if scale.size:
            mean_height, variation = self.percent(self.unit, 50, 130), (-self.unit // 12, self.unit // 12 + 1)
            height = mean_height + self.rng.integers(*variation, scale.size)
            top, bottom = self.horizon - (height - self.unit) * scale // ONE, self.horizon + self.unit * scale // ONE
            color = self.hazy((62, 100, 50), int(scale.max()))
            self.paint((self.y >= top) & (self.y < bottom), color, VEGETATION, columns)

    def draw_house(self, columns: slice, scale: np.ndarray, *, sunny: bool) -> None:
        if not scale.size:
            return
        height, storey = self.percent(self.unit, 180, 560), self.percent(self.unit, 78, 104)
        bay = self.percent(self.unit, 56, 96)
        foot = self.horizon + self.unit * scale // ONE
        above = (foot - self.y) * ONE // scale.clip(1)  # height above the pavement, at scale ONE
        along = 2 * self.width * ONE // scale.clip(1)
        wall = tuple(channel * (118 if sunny else 84) // 100 for channel in self.choice(WALLS))
        near = int(scale.max())
        inside = (above > 0) & (above <= height)
        self.paint(inside, self.hazy(wall, near), BUILDING, columns)
        window_rows = (above % storey > storey * 30 // 100) & (above % storey < storey * 78 // 100)
        windows = window_rows & (along % bay > bay * 24 // 100) & (above < height * 94 // 100) & (above > storey)
        shop_rows = (above > storey * 14 // 100) & (above < storey * 80 // 100)
        shops = shop_rows & (along % (2 * bay) > bay * 20 // 100)
        glass = inside & (windows | shops) & (scale > 26)
        lit = self.light.lamps & ((along // bay * 7 + above // storey * 5 + height) % 3 != 0)
        self.paint(glass & ~lit, self.hazy((62, 74, 92), near), BUILDING, columns)
        self.paint(glass & lit, (510, 420, 210), BUILDING, columns)
        eaves = self.hazy(tuple(channel * 6 // 10 for channel in wall), near)
        self.paint(inside & (above > height - self.unit // 12), eaves, BUILDING, columns)

    # Objects on the ground

    def objects(self) -> Iterator[ScaledDrawing]:
        """Scales of objects and functions that draw them, in no particular order."""
        for side in (0, 1):
            distance, step = self.randint(ONE + 40, 2 * ONE), self.randint(ONE, 3 * ONE)
            yield from self.series(self.draw_pole, self.on_pavement(side, 6, 14), distance, step, self.randint(0, 2))
            if self.randint(0, 2):
                distance, step = self.randint(ONE + 60, 3 * ONE), self.randint(ONE, 2 * ONE)
                place = self.on_pavement(side, 60, 130)
                yield from self.series(self.draw_tree, place, distance, step, self.randint(1, 4))
            if self.randint(0, 2) == 0:
                distance, step = self.randint(ONE, 3 * ONE), self.randint(ONE * 3 // 4, ONE * 5 // 4)
                place = self.signed(self.road[side] - self.unit * 43 // 100, side)
                yield from self.series(self.draw_car, place, distance, step, self.randint(1, 5))
        for _ in range(self.randint(0, 3)):
            side = self.randint(0, 1)
            lane = self.signed(self.percent(self.road[side], 32, 48), side)
            yield self.at_random_scale(self.draw_car, lane, 30, 190)
        for _ in range(max(0, self.randint(-2, 4))):
            yield self.at_random_scale(self.draw_person, self.on_pavement(self.randint(0, 1), 20, 85), 50, 220)
        if self.randint(0, 7) == 0:
            yield self.at_random_scale(self.draw_person, self.percent(self.unit, -80, 80), 50, 130)

    def series(self, draw: DrawObject, across: int, distance: int, step: int, count: int) -> Iterator[ScaledDrawing]:
        """Equal objects at equal distances."""
        return (self.at_scale(draw, across, ONE * ONE // (distance + i * step)) for i in range(count))

    def at_random_scale(self, draw: DrawObject, across: int, far: int, near: int) -> ScaledDrawing:
        """Uniform in distance between two scales, so mostly far away."""
        return self.at_scale(draw, across, ONE * ONE // self.randint(ONE * ONE // near, ONE * ONE // far))

    def at_scale(self, draw: DrawObject, across: int, scale: int) -> ScaledDrawing:
        x, y = self.vanishing + across * scale // ONE, self.horizon + self.unit * scale // ONE
        return scale, lambda: draw(x, y, scale)

    def on_pavement(self, side: int, low: int, high: int) -> int:
        """A lateral position in per cent of the pavement, from the kerb (0) to the houses (100)."""
        return self.signed(self.road[side] + self.percent(self.walk[side] - self.road[side], low, high), side)

    def signed(self, across: int, side: int) -> int:
        return across if side else -across

    def size(self, percent: int, scale: int) -> int:
        """Per cent of the unit, in pixels at this scale."""
        return self.unit * percent * scale // 100 // ONE

    def draw_car(self, x: int, y: int, scale: int) -> None:
        """Seen from behind on the right side of the road, from the front on the left."""
        height, half = self.size(66, scale), self.size(40, scale)
        paint, is_rear = self.hazy(self.choice(CAR_PAINTS), scale), x > self.vanishing
        tire, glass = self.hazy((26, 26, 30), scale), self.hazy((70, 86, 104), scale)
        self.shadow(x, y, half * 12 // 10 + 1, height // 7 + 1)
        for left in (x - half, x + half - half * 4 // 10):
            self.box(left, y - height // 5, left + half * 4 // 10 + 1, y + height // 20 + 1, tire, CAR)
        self.box(x - half, y - height * 58 // 100, x + half + 1, y - height // 9, paint, CAR)
        cabin = height * 42 // 100
        for row in range(cabin):  # narrower towards the roof
            inset = half * (14 + row * 26 // max(cabin, 1)) // 100
            level = y - height * 58 // 100 - row
            self.box(x - half + inset, level - 1, x + half - inset + 1, level, paint, CAR)
            if height * 5 // 100 < row < height * 34 // 100:
                self.box(x - half + inset * 3 // 2, level - 1, x + half - inset * 3 // 2 + 1, level, glass, CAR)
        if self.light.lamps:
            lamp = np.array((300, 40, 30) if is_rear else (340, 330, 280))
        else:
            lamp = self.hazy((210, 30, 30) if is_rear else (240, 236, 214), scale)
        for left in (x - half, x + half - half * 30 // 100):
            self.box(left, y - height * 48 // 100, left + half * 30 // 100 + 1, y - height * 36 // 100, lamp, CAR)
        plate, plate_half = self.hazy((226, 222, 200), scale), half * 3 // 10
        self.box(x - plate_half, y - height * 30 // 100, x + plate_half, y - height * 20 // 100, plate, CAR)

    def draw_person(self, x: int, y: int, scale: int) -> None:
        height = self.size(self.randint(68, 84), scale)
        half, head = max(height * 13 // 100, 1), max(height * 9 // 100, 1)
        coat, legs, skin = (self.hazy(self.choice(colors), scale) for colors in (CLOTHES, CLOTHES[2:5], SKINS))
        stride, hip = self.randint(0, half), y - height * 50 // 100
        self.shadow(x, y, half + 1, max(height // 16, 1))
        self.box(x - half + 1 - stride // 2, hip, x + 1 - stride // 2, y, legs, PERSON)
        self.box(x + stride // 2, hip, x + half + stride // 2, y, legs, PERSON)
        self.box(x - half, y - height * 82 // 100, x + half + 1, y - height * 42 // 100, coat, PERSON)
        self.oval(x, y - height + head, head, head, skin, PERSON)

    def draw_pole(self, x: int, y: int, scale: int) -> None:
        """A street lamp with an arm over the road."""
        top, half, arm = y - self.size(270, scale), self.size(2, scale), self.size(34, scale)
        gray = self.hazy((84, 88, 92), scale)
        left = (x - half) // SUPERSAMPLING * SUPERSAMPLING  # covers whole final pixels, though it is thin
        self.box(left, top, left + (2 * half // SUPERSAMPLING + 1) * SUPERSAMPLING, y, gray, POLE)
        tip = x - arm if x > self.vanishing else x + arm
        self.box(min(x, tip), top - half, max(x, tip) + 1, top + half + 1, gray, POLE)
        glow = np.array((520, 470, 330)) if self.light.lamps else self.hazy((214, 214, 204), scale)
        self.box(tip - 2 * half - 1, top + half, tip + 2 * half + 2, top + 3 * half + 2, glow, POLE)

    def draw_tree(self, x: int, y: int, scale: int) -> None:
        height, half = self.size(self.randint(150, 260), scale), max(self.size(6, scale), 1)
        self.box(x - half, y - height * 60 // 100, x + half + 1, y, self.hazy((86, 64, 46), scale), VEGETATION)
        green, crown = self.randint(88, 132), height * 34 // 100
        for i in range(7):
            leaf = self.hazy((green - 44 + 3 * i, green - 12 + 5 * i, 40 + 2 * i), scale)
            dx, dy = self.percent(crown, -62, 62), self.percent(crown, -55, 55) - i * crown // 14
            rx, ry = self.percent(crown, 42, 66), self.percent(crown, 36, 56)
            self.oval(x + dx, y - height * 70 // 100 + dy, rx, ry, leaf, VEGETATION)
