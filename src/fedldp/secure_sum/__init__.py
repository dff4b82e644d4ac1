"""Secure aggregation: the server learns the sum of the clients' vectors, and nothing else of them.

    phase 0  advertise     client: two public keys                    server: the keys of all, U1
    phase 1  share_keys    client: sealed shares of its two secrets   server: to each its boxes, U2
    phase 2  masked_input  client: its masked vector                  server: who is left, U3
    phase 3  unmask        client: one share for each client of U2    server: the sum over U3

Each phase is one message of the server and one message of each client that is left; clients may
drop out at any point as long as ``threshold`` stay. The server tells each thing once, and of the
boxes it tells a client its own n, not all n^2. All keys depend on the parameters, the round, the
keys of U1, and a digest of what else clients are told (the weights): clients that were told
something else cannot open each other's boxes. Client u adds to its vector a mask of its own,
PRG(b_u), and for every other client v of U2 a mask that v subtracts: PRG of the secret that their
mask keys agree on. In phase 3 the others reveal shares of b_u if u is in U3, and of the mask key of
u if not, so that the server can remove what did not cancel.

What is proven (Section 6 of the source, honest but curious, with a curious server): a server that
follows the protocol, and pools all that it sees with fewer than ``threshold`` clients, learns the
sum of the vectors of the other clients of U3, and nothing else of them. This is no differential
privacy: the sum is exact, and what it protects is what the vectors were randomised for.

Certified keys. With an ``Identity`` a client signs its public keys of the round, and takes part
only if every key of U1 is signed by the client of the roster that it stands for: then a server can
invent no client, nor read a box or a mask in another's place.

Both kinds of shares of a client. Let at most u clients of a sum collude with the server, let keys
be certified, and n + u < 2 t. Then no server, whatever U3 it tells whom, gets t shares of b_v and t
shares of the mask key of v, for a client v that does not collude. Proof: v sealed each share for
one client of the U1 that it was told, n at most, under keys that depend on all of U1; a client that
was told another U1 cannot open its box, and the keys are certified, so nobody else can. So all
shares of v are held by n clients, c of which collude, c <= u. Each of the other n - c reveals one
share of v at most, of one kind: it answers phase 3 once, also after a restart. Both kinds together
need t - c of them each, 2 t - 2 c <= n - c, so 2 t <= n + c <= n + u. That is not so.

What a server that cheats could do:

- Without certified keys: answer phase 0 with keys of its own, or with clients that it invented.
  Nothing ties a key to a client then, so it learns a single client's vector.
- Leave clients out as drop-outs: the sum is then over as few as ``threshold`` clients, of which all
  but u do not collude. Guarantees that rest on more honest summands rest on a server that does not.
- Tell clients different U2 or U3: it gets both secrets of no client, but may learn the sum of a
  smaller group than the clients of any U3. The source's consistency check (its round 3) would
  prevent it.
- Give clients different weights, so that the sum is of one client's report and of what it knows: no
  two clients with different weights take part in one sum.

What a client that cheats could do: make the sum any other, but not learn more. It can also stop a
sum. Malformed, repeated or uncertified messages, and keys that would stop others, cost its own
place alone. Boxes that others cannot open cost one sum: those who got one complain in place of
sending a vector, and ``Suspects`` leaves the accused, or the accuser, out of later rounds. A client
that lies only in phase 3, or seals wrong shares and then leaves, can stop sums again and again, and
is not found out: without commitments to shares nobody can tell who lied. It must be taken off the
roster by hand. Who sent a message is the transport's to certify.

Committees. A round of many clients may have several sums, each of one committee (``committees``)
by a protocol run of its own, in which a client takes keys of its committee's members alone. All
above then holds within each committee: n is the clients of the largest, and u bounds those of any
one of them that collude. The server learns each committee's sum, so whatever rests on the number of
summands rests on that of the smallest committee.

Why keys and shares are made anew in each round, and not once in a run: a finished sum has told the
server b_u of every client u that stayed, so b_u must be new in the next, and its shares with it.
Mask keys may not stay either. If u leaves in a later round, the others reveal its mask key; with it
and b_u of the earlier round, the server takes all masks off u's vector of that round. To agree on
keys once takes a protocol that reveals secrets of one round only, and another proof.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; the signed keys are of its
active variant. Ours: the mask key is made of a shared seed of 16 bytes; a client also sends its own
shares to itself, sealed; it opens the boxes already in phase 2, so that it masks only with clients
who saw the same keys and parameters; and what else clients are told is part of the context.

It may use core, accounting, protocol, mechanisms.
"""

__all__ = [
    "client",
    "client_role",
    "committees",
    "identities",
    "masks",
    "messages",
    "server",
    "server_role",
]
