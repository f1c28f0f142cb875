// Plays NIXL's part: calls the plugin by slot numbers, and reads members by offsets, without the plugin's declarations.
// ci/nixl.sh compares the slots with NIXL's own plugins.
//
//   host PLUGIN LIBNIXL NAME [LIBCUDA]    the test NAME; "refused": the plugin refuses this libnixl
#include "host_faults.hpp"
#include "host_gpu.hpp"
#include "host_local.hpp"
#include "host_peers.hpp"

#include <cstdio>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <string>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  const Text name = argv[3];
  alarm(1200);
  if (Text(argv[2]) != "none" && !dlopen(argv[2], RTLD_NOW)) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  plugin = reinterpret_cast<const Plugin *(*)()>(dlsym(library, "nixl_plugin_init"))();
  CHECK((plugin == nullptr) == (name == "refused"));
  if (plugin) {
    const char *libcuda = argc > 4 ? argv[4] : "libcuda.so.1";
    const std::map<Text, std::function<void()>> tests{
        {"table", table},
        {"options", options_in_force},
        {"local", [] { within_a_process("cpu"); within_a_process("sim:seed=7"); }},
        {"waits", deregistering_and_releasing_wait},
        {"again", memory_is_registered_again},
        {"threads", a_transfer_is_released_while_its_memory_is_deregistered},
        {"stuck", transfers_of_a_stuck_device_fail},
        {"fault", a_fault_that_remains_is_an_error},
        {"adjacent", adjacent_pieces_are_one_copy},
        {"estimates", estimates_come_from_earlier_transfers},
        {"retries", failed_pieces_are_tried_again},
        {"wrappers", engines_of_engines},
        {"fallback", the_cpu_takes_over_from_a_lost_device},
        {"peers", [] { between_processes({}); }},
        {"killed", [] { killed_and_stopped_peers_are_errors({}); }},
        {"far", [] { between_processes(FAR); peers_on_other_hosts_grant_what_they_registered(); }},
        {"far_killed", [] { killed_and_stopped_peers_are_errors(FAR); }},
        {"far_stopped", a_stopped_peer_delays_no_other_peer},
        {"taken", a_taken_mailbox_gets_nothing},
        {"sleeps", waiting_for_a_mailbox_sleeps},
        {"unreachable", unreachable_peers_are_errors},
        {"lost", a_lost_device_ends_the_program},
        {"gpu", [&] { memory_of_a_gpu(libcuda, "cuda"); }},
        {"gpu_wrapped", [&] { memory_of_a_gpu(libcuda, "verify+cuda"); memory_of_a_gpu(libcuda, "auto:device=cuda"); }},
        {"gpu_peer", [&] { device_memory_of_two_processes(libcuda, {}); }},
        {"gpu_far", [&] { device_memory_of_two_processes(libcuda, FAR); }},
        {"gpu_peer_gone", [&] { lost_device_memory_of_a_peer_is_an_error(libcuda); }},
        {"gpu_refused", [&] { device_memory_that_cannot_be_opened(libcuda); }},
        {"gpu_lost", [&] { the_cpu_takes_over_from_a_lost_gpu(libcuda); }},
    };
    for (const auto &[each, test] : tests)
      if (each == name || (name == "all" && each.substr(0, 3) != "gpu" && each != "lost" && each.substr(0, 3) != "far"))
        test();
    CHECK(name == "all" || tests.count(name) == 1);
    reinterpret_cast<void (*)()>(dlsym(library, "nixl_plugin_fini"))();
  }
  std::puts(wrong ? "wrong" : "right");
  return wrong;
}
