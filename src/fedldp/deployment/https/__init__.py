"""fedldp's own link between a server and its sites: HTTPS, with connections opened by sites only.

    site                                       server
    GET  /v1/nonce                         ->  fresh bytes, valid once and for a minute
    POST /v1/hello     nonce, key, signature, version  ->  a token for the session
    POST /v1/agreement the same       ->  the agreement's file, without a session
    POST /v1/question  (waits)             ->  a round request and its number, or none yet
    POST /v1/answer/N  the answer          ->  accepted

A site recognises the server by its TLS certificate, signed by an authority that the site's policy
names and the agreement pins. The server recognises a site by the Ed25519 key in the agreement's
roster. The server ignores everyone else: for a request without a token, it reads no body and stores
nothing. This link does not read round requests or answers. It hands out an unanswered request
again, so messages may be lost and processes may die.
"""

__all__ = ["hello", "server", "site"]
