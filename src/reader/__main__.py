"""``python -m reader``, and the script `reader`."""

from lakeproof.signals import end_on_interrupt

end_on_interrupt()  # before imports that take a second

from reader.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
