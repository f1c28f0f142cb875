// Estimates of the time of a transfer, from the transfers that this backend has completed.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

namespace dma_nixl {

using Microseconds = std::chrono::duration<double, std::micro>;

struct Estimate {
  Microseconds time{};
  Microseconds margin{};
};

// Means and deviations of times for each way, direction and size. Transfers whose bytes and whose numbers of copies have the
// same number of bits count as of one size.
class Costs {
public:
  // `way` is the device, or null for system calls.
  void note(const void *way, unsigned direction, size_t bytes, size_t copies, Microseconds time) {
    Estimate &known = known_[key(way, direction, bytes, copies)];
    if (known.time.count() == 0) {
      known = {time, time / 2};
      return;
    }
    // The weights are those of the round-trip time in TCP (RFC 6298).
    const Microseconds error = time - known.time;
    known.margin += ((error.count() < 0 ? -error : error) - known.margin) / 4;
    known.time += error / 8;
  }

  // Estimates a transfer by those of its own size, or of the nearest size. Returns false if none has completed.
  bool estimate(const void *way, unsigned direction, size_t bytes, size_t copies, Estimate &estimate) const {
    const Key wanted = key(way, direction, bytes, copies);
    const auto distance = [&wanted](const Key &other) {
      const auto apart = [](unsigned a, unsigned b) { return a < b ? b - a : a - b; };
      return apart(std::get<2>(wanted), std::get<2>(other)) + apart(std::get<3>(wanted), std::get<3>(other));
    };
    const Key first{way, direction, 0, 0}, last{way, direction, 65, 0};
    auto nearest = known_.end();
    for (auto each = known_.lower_bound(first); each != known_.end() && each->first < last; ++each)
      if (nearest == known_.end() || distance(each->first) < distance(nearest->first))
        nearest = each;
    if (nearest == known_.end())
      return false;
    estimate = nearest->second;
    const unsigned apart = distance(nearest->first);
    const bool is_longer = std::get<2>(wanted) > std::get<2>(nearest->first);
    if (apart > 0) {
      // Time is at most in proportion to the bytes, so an estimate from another size may be wrong by all of it.
      estimate.time *= is_longer ? static_cast<double>(uint64_t{1} << (std::get<2>(wanted) - std::get<2>(nearest->first))) : 1.0;
      estimate.margin = estimate.time;
    }
    return true;
  }

private:
  using Key = std::tuple<const void *, unsigned, unsigned, unsigned>;

  static unsigned bits(size_t number) {
    unsigned bits = 0;
    for (; number > 0; number >>= 1)
      bits++;
    return bits;
  }
  static Key key(const void *way, unsigned direction, size_t bytes, size_t copies) {
    return {way, direction, bits(bytes), bits(copies)};
  }

  std::map<Key, Estimate> known_;
};

} // namespace dma_nixl
