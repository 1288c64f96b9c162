"""Who asks the host over REST, by a token: routes for readers, researchers and operators."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tacit_services.federation.people import People, Person, Right

PERSON_TOKEN = HTTPBearer(
    auto_error=False, description="an operator's, researcher's or reader's token"
)


class PersonAccess:
    """Finds out who has sent a request's token, and whether they may do what they ask for.

    Usage, where `access.at_least(Right.READER)` is a route class's check of the token before
    anything else (transport/bearer.py), and the person is asked for again inside::

        APIRouter(route_class=guarded(PERSON_TOKEN, access.at_least(Right.READER)))
    """

    def __init__(self, people: People) -> None:
        self._people = people

    def person(self, credentials: HTTPAuthorizationCredentials | None) -> Person:
        """Return whose token it is. Raises HTTPException: 401 where it is nobody's."""
        known = None if credentials is None else self.known(credentials.credentials)
        if known is None:
            raise HTTPException(
                401,
                "the token is missing or wrong (tacit: --token-file)",
                {"WWW-Authenticate": "Bearer"},
            )
        return known

    def known(self, token: str) -> Person | None:
        """Return whose token it is; None: nobody's."""
        secret, _, _ = token.partition(".")  # behind it: the host's SHA-256
        return self._people.person(secret)

    def at_least(self, right: Right) -> Callable[[HTTPAuthorizationCredentials | None], None]:
        """Return the check of a token that raises HTTPException: 401, or 403 for a lesser right."""

        def check(credentials: HTTPAuthorizationCredentials | None) -> None:
            person = self.person(credentials)
            if not person.may(right):
                raise HTTPException(
                    403,
                    f"{person.name} is a {person.right.name.lower()}; this is for a "
                    f"{right.name.lower()}",
                )

        return check
