#!/bin/sh
# certificates.sh NODE... - certificates for agents that measure with each other.
#
# Run it in a folder of its own, on a machine that you trust. The first run makes the authority:
# ca.key, which stays here, and ca.pem, which goes to every node. Each NODE gets NODE.pem and
# NODE.key. NODE is the name that the other agents know it by: node_name, and the name in the list
# of peers. Copy ca.pem, NODE.pem and NODE.key to the node, readable by the user fabricpulse only:
#
#   install -m 640 -o root -g fabricpulse ca.pem NODE.pem NODE.key /etc/fabricpulse/
set -eu
umask 077

[ -e ca.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=fabricpulse peers" -keyout ca.key -out ca.pem

for node; do
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj "/CN=$node" -keyout "$node.key" -out "$node.csr"
    printf 'subjectAltName = DNS:%s\nextendedKeyUsage = serverAuth, clientAuth\n' "$node" > "$node.ext"
    openssl x509 -req -in "$node.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 \
        -extfile "$node.ext" -out "$node.pem"
    rm "$node.csr" "$node.ext"
done
