"""The link of fedldp's own between a server and its sites: HTTPS, opened by the sites alone.

    site                                       server
    GET  /v1/nonce                         ->  fresh bytes, which are good once and for a minute
    POST /v1/hello     nonce, key, signature, version  ->  a token for the session
    POST /v1/agreement the same       ->  the agreement's file, without a session
    POST /v1/question  (waits)             ->  the next question, with its number; or none for now
    POST /v1/answer/N  the answer          ->  taken

The server is known by its TLS certificate, which an authority signed that the site's policy names
and the agreement pins; a site by the Ed25519 key that stands in the agreement's roster. Nobody else
is listened to: no body is read, and nothing is kept, for a request without a token. What questions
and answers mean is not known here; a question that was not answered is handed out again, so
messages may be lost and processes may die.
"""

__all__ = ["hello", "server", "site"]
