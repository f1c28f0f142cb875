// The bytes that a transfer of pieces is expected to copy.
#pragma once
#include "agent.hpp"

#include <algorithm>
#include <utility>
#include <vector>

// Does on the expected bytes what a transfer does: `ours` and `theirs` hold the offset and length of each piece.
static void apply(unsigned operation, Bytes &left, const std::vector<std::pair<size_t, size_t>> &ours, Bytes &right,
                  const std::vector<std::pair<size_t, size_t>> &theirs) {
  for (size_t at = 0; at < ours.size(); at++) {
    unsigned char *const one = left.data() + ours[at].first, *const other = right.data() + theirs[at].first;
    if (operation == WRITE)
      std::copy_n(one, ours[at].second, other);
    else
      std::copy_n(other, ours[at].second, one);
  }
}
