#!/usr/bin/env bash
# Reduces a copy of the stand-in's headers to DOCA 2.5: ci/older_doca.sh INCLUDE_DIR
# Removes the headers, calls, types and constants that the public headers of 2.5.0108 lack.
set -euo pipefail

cd "$1"
# 2.5 has another comm channel.
rm doca_comch.h doca_comch_consumer.h doca_comch_producer.h doca_mmap_advise.h

# Parts of names of calls and types that 2.5 lacks.
later='task_batch|event_batch|task_submit_(ex|flag)|event_mode|task_wait_n?eq|event_wait_n?eq|remote_pci|set_doca_buf'
later+='|(dpa|gpu)_handle|doca_gpu_dma|doca_dpa_dev_mmap_t|dpa_memrange|thread_safety|chain_list_tail|buf_set_data_len'
later+='|buf_reuse|inventory_expand|completion_vector|flush_tasks|resource_reclaim|notification_moderation|vhca_id'
later+='|active_rate|devinfo_get_(pci_func_type|sf_index)|rep_get_iface_name|create_with_buf|argp_(register_)?cmd'
later+='|(hidden|inherited|singular)\(|logger_c(b_t|allback)'
for header in doca_*.h; do
    # First the names that share a paragraph with older ones: opaque types and constants.
    grep -vE "^struct [a-z_]*($later)[a-z_]*;\$|^[[:space:]]DOCA_ERROR_(AUTHENTICATION|BAD_CONFIG|SKIPPED)\>" "$header" |
        awk -v RS= -v later="$later" '
            # Type definitions share a paragraph, too.
            /^typedef/ {
                kept = ""
                statements = split($0 "\n", statement, ";\n")
                for (i = 1; i < statements; i++)
                    if (statement[i] !~ later) kept = kept statement[i] ";\n"
                if (kept != "") print kept
                next
            }
            # An inline function may contain empty lines.
            { dropped = inside ? dropped : $0 ~ later; inside = /\n\{/ || inside }
            /\n\}/ || /^\}/ { inside = 0 }
            !dropped { print $0 "\n" }' >"$header.older"
    mv "$header.older" "$header"
done
sed -i -E 's/(DOCA_VERSION_MAJOR) .*/\1 2/; s/(DOCA_VERSION_MINOR) .*/\1 5/; s/(DOCA_VERSION_PATCH) .*/\1 108/; s/"3\.0\.0058"/"2.5.0108"/' doca_version.h
