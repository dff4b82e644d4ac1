"""Secure aggregation: the server learns nothing about the clients' vectors except their sum.

    phase 0  advertise     client: two public keys                    server: the keys of all, U1
    phase 1  share_keys    client: sealed shares of its two secrets   server: to each its boxes, U2
    phase 2  masked_input  client: its masked vector                  server: who is left, U3
    phase 3  unmask        client: one share for each client of U2    server: the sum over U3

Each phase is one message from the server and one message from each remaining client. Clients may
drop out at any point as long as ``threshold`` of them stay. The server does not repeat in a later
phase what it has sent before. Of the n^2 boxes, it sends each client only the n that are sealed for
it. All keys depend on the parameters, the round, the keys of U1, and a digest of everything else
that clients are told (the weights). So clients that were told different things cannot open each
other's boxes. Client u adds to its vector its own mask, PRG(b_u). For every other client v of U2 it
adds or subtracts a common mask, and v does the opposite. This mask is the PRG of the secret on
which the mask keys of u and v agree. In phase 3 the others reveal shares of b_u if u is in U3, and
of the mask key of u otherwise, so that the server can remove the masks that did not cancel.

What is proven (Section 6 of the source, for honest-but-curious clients and server): a server that
follows the protocol, and pools everything it sees with what fewer than ``threshold`` clients see,
learns the sum of the vectors of the other clients of U3, and nothing else about these vectors. This
is not differential privacy: the sum is exact, and only the randomisation of the vectors protects
what it reveals.

Certified keys. With an ``Identity`` a client signs its public keys of the round. It takes part only
if every client of U1 is on the roster and has signed the keys that are said to be its own. A server
can then neither invent a client nor read a box or a mask in another client's place.

Why no server gets both kinds of shares of a client. Suppose that at most u clients of a sum collude
with the server, that keys are certified, and that n + u < 2 t. Then, for a client v that does not
collude, no server gets both t shares of b_v and t shares of the mask key of v, whichever U3 it
tells each client. Proof: v sealed each share for one client of the U1 that it was told, at most n,
under keys that depend on all of U1. A client that was told another U1 cannot open its box, and
nobody else can open it, because the keys are certified. So all shares of v are held by n clients,
of which c <= u collude. Each of the other n - c reveals at most one share of v, of one kind: it
answers phase 3 once, even after a restart. To get t shares of both kinds, the server needs t - c of
each kind from these clients: 2 t - 2 c <= n - c, so 2 t <= n + c <= n + u, a contradiction.

What a cheating server could do:

- Without certified keys: answer phase 0 with its own keys, or with clients that it invented.
  Nothing then ties a key to a client, so the server learns a single client's vector.
- Leave clients out as if they had dropped out: the sum then covers as few as ``threshold`` clients,
of which at most u collude. A guarantee that needs more honest summands than such a sum has assumes
a server that leaves nobody out in this way.
- Tell different clients different U2 or U3: it still never gets both secrets of a client, but it
  may learn the sum over a group that is smaller than any U3. The source's consistency check (its
  round 3) would prevent it.
- Give clients different weights, to get the sum of one client's report and values that the server
  knows. This fails: no two clients with different weights take part in one sum.

What a cheating client could do: change the sum to any other value, but learn no more than an honest
client. It can also prevent a sum. If it sends malformed, repeated or uncertified messages, or keys
that would make other clients refuse, only this client is left out. A box that its recipient cannot
open spoils one sum: the recipient complains instead of sending a vector, and ``Suspects`` leaves
the accused or the accuser out of later rounds. A client that lies only in phase 3, or seals wrong
shares and then leaves, can prevent sums again and again without being identified, because without
commitments to shares nobody can tell who lied. It must be removed from the roster by hand. The
transport must certify who sent a message.

Committees. A round of many clients may have several sums, one for each committee (``committees``).
Each is a separate run of the protocol, in which a client accepts keys only from its committee's
members. Everything above then holds within each committee: n is the number of clients of the
largest committee, and u bounds the colluding clients of any one committee. The server learns each
committee's sum, so a guarantee that rests on the number of summands rests on the size of the
smallest committee.

Clients make new keys and shares in each round, not once in a run. In a finished sum the server has
learned b_u of every client u that stayed, so b_u and its shares must be new in the next round. Mask
keys must be new too. If u leaves in a later round, the others reveal its mask key; with it and b_u
of the earlier round, the server could remove all masks from u's vector of that round. Agreeing on
keys once per run would need another protocol, which reveals only the secrets of one round, and
another proof.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; the signed keys are from
its active variant. Our changes: the mask key is derived from a shared seed of 16 bytes; a client
also sends its own shares to itself, sealed; it opens the boxes before it masks, in phase 2, so that
it masks only with clients who saw the same keys and parameters; and everything else that clients
are told is part of the context.

``client`` and ``server`` are the two ends of one sum, and of an algorithm whose reports are summed.
``messages`` has parameters, committees, messages and masks, ``crypto`` the cryptography,
``identities`` the signed keys.

It may use core, accounting, protocol, mechanisms.
"""

__all__ = [
    "client",
    "identities",
    "messages",
    "server",
]
