#!/usr/bin/env bash
# Boots two machines of ci/vm that are connected by Soft-RoCE, the kernel's software RDMA device, and runs a shell script in
# both: ci/rxe.sh OPTIONS SCRIPT. The options and the exit status are those of ci/vm. The script sources /rxe_device.sh
# (ci/guest), which creates the device.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

words=(-2 -p ibverbs-providers -p iproute2 -f rdma -f '@usr/lib/*/libibverbs/librxe-*.so' -f @etc/libibverbs.d/rxe.driver)
for module in crc32_generic virtio_pci virtio_net rdma_rxe ib_uverbs; do
    words+=(-k "$module")
done
exec ci/vm "${words[@]}" -f ci/guest/rxe_device.sh:rxe_device.sh "$@"
