"""fedldp's own link between a server and its sites: HTTPS, with connections that only sites open.

    site                                       server
    GET  /v1/nonce                         ->  random bytes, valid for one use within a minute
    POST /v1/hello     nonce, key, signature, version  ->  a token for the session
    POST /v1/agreement the same       ->  the agreement's file, without a session
    POST /v1/question  (waits)             ->  a round request and its number, or nothing yet
    POST /v1/answer/N  the answer          ->  accepted

A site recognises the server by its TLS certificate, signed by an authority that the site's policy
names and the agreement pins. The server recognises a site by the Ed25519 key in the agreement's
roster. The server ignores everyone else: for a request without a token, it reads at most the few
bytes of a hello, and stores nothing. This link does not interpret round requests or answers. It
hands out an unanswered request again, so a run survives lost messages and restarted processes.
"""

__all__ = ["hello", "server", "site"]
