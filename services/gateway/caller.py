"""Who calls: the tenant behind the credentials, and the cache namespace that follows from it."""

from dataclasses import dataclass

PUBLIC_TENANT = "public"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    tenant: str
    namespace: str
    """Cached prefixes of different namespaces never meet. Derived here, never read from a request."""


def caller_of(tenant: str) -> Caller:
    """Returns the caller of a tenant."""
    return Caller(tenant=tenant, namespace=f"tenant:{tenant}")
