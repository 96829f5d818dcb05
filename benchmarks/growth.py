"""Time and memory of a process that grow with the number of images."""

from collections.abc import Callable

import numpy as np

from benchmarks.harness import Measurement, ProcessMeasurement


def measure_growth(title: str, measure: Callable[[int], ProcessMeasurement], counts: list[int]) -> list[Measurement]:
    """A row for each size, and one for the cost of each additional image: the slopes of linear fits.

    Bytes are of anonymous memory, which excludes memory-mapped files. What a measurement answers are sizes of files.
    """
    results = [measure(count) for count in counts]
    first = results[0]
    seconds_each = np.polyfit(counts, [result.seconds for result in results], 1)[0]
    bytes_each = np.polyfit(counts, [result.peak_anonymous for result in results], 1)[0]
    rows = [
        Measurement(
            title,
            f"{count:,} images",
            result.seconds,
            ratio=result.seconds / first.seconds,
            memory=result.peak_resident,
            note="; ".join(
                [
                    f"peak {result.peak_resident / first.peak_resident:.2f} x the first",
                    *(f"{name}: {size / count:.1f} bytes per image" for name, size in (result.answer or {}).items()),
                ]
            ),
        )
        for count, result in zip(counts, results, strict=True)
    ]
    note = f"{1e6 * seconds_each:.1f} microseconds, {bytes_each:.0f} bytes"
    return [*rows, Measurement(title, "per additional image", note=note)]
