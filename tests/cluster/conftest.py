"""Several services over one PostgreSQL and one folder, in this process."""

from tests.store.conftest import postgres

__all__ = ["postgres"]
