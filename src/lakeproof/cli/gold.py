"""The commands of `lakeproof gold`."""

import sys
from functools import partial
from typing import Annotated

import typer

from lakeproof.command import check_each
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import Product
from lakeproof.gold.product_file import product_names
from lakeproof.gold.samples import Detector, Samples
from lakeproof.gold.samples_file import load_any
from lakeproof.settings import load_settings

gold_commands = typer.Typer(help="Check data products.", no_args_is_help=True)


@gold_commands.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Data products to check. Default: all in LAKE_GOLD.", show_default=False
        ),
    ] = None,
) -> None:
    """Check data products against the contracts of their streams.

    Exits with 2 if one is rejected, and prints line and hint.
    """
    settings = load_settings()
    chosen = names or product_names(settings.gold)
    if not chosen:
        raise UsageError(
            f"No data products found in {settings.gold}.", "Run in the project's folder, or set LAKE_GOLD."
        )

    def check_one(name: str) -> None:
        product = load_any(settings.gold, name, partial(load_contract, settings.contracts))
        summary = _of_samples(product) if isinstance(product, Samples) else _summary(product)
        sys.stdout.write(f"{name}: ok: {summary}\n")
        contract = load_contract(settings.contracts, product.stream)
        for field in contract.deprecated_in(product.fields):
            sys.stderr.write(f"Warning: {name}: {field} is deprecated in the contract of {product.stream}.\n")

    check_each(chosen, check_one)


def _summary(product: Product) -> str:
    keys = ", ".join(map(str, product.keys)) or "none"
    measures = ", ".join(measure.name for measure in product.measures)
    return (
        f"silver {product.stream}, key {keys}, window {product.window}, measures {measures}, publish {product.publish}"
    )


def _of_samples(samples: Samples) -> str:
    declared = [Detector.OUT_OF_RANGE] if samples.value.expected else []
    declared += [each for each in Detector if getattr(samples.detectors, each, None)]
    return (
        f"silver {samples.stream}, samples of {samples.value.name} by {samples.by}, device {samples.device.name}, "
        f"window {samples.window}, anomalies {samples.anomalies}, detectors {', '.join(declared) or 'none'}, "
        f"alerts {f'{samples.alerts.topic} {samples.alerts.mode}' if samples.alerts else 'none'}"
    )
