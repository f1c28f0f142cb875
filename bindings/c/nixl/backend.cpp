#include "backend_class.hpp"

#include "settings.hpp"
#include "threads.hpp"
#include <atomic>
#include <cerrno>
#include <future>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

namespace dma_nixl {

Backend::Backend(const InitParameters &init) : Engine(init) {
  failed = !open(*init.options);
  if (!failed)
    thread_ = start_thread([this] { run(); });
}

Backend::~Backend() {
  if (thread_.joinable()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    wake();
    thread_.join();
  }
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return remote_calls_ == 0; });
  }
  // Peers that are not used any more close their queues. The queues of all others are closed here.
  peers_.clear();
  std::vector<Device *> devices(remote_queues_.begin(), remote_queues_.end());
  devices.insert(devices.end(), {&local_device_, &cpu_device_});
  for (Device *device : devices)
    if (device->is_open() && dma_queue_close(device->queue, 1000) != DMA_OK)
      log(last_error());
  for (Transfer *transfer : transfers_)
    close_batch(*transfer);
  if (remote_engine_.engine.id != local_device_.engine.id && has_remote())
    (void)dma_close(remote_engine_.engine);
  for (const Device *device : {&local_device_, &cpu_device_})
    if (device->engine.id != 0)
      (void)dma_close(device->engine);
}

MemoryTypes Backend::memory_types() const {
  return local_device_.capabilities & DMA_CAN_REGISTER_DEVICE ? MemoryTypes{DRAM, VRAM} : MemoryTypes{DRAM};
}

Status Backend::connect(const std::string &agent_name) {
  std::lock_guard<std::mutex> lock(mutex_);
  return agent_name == agent || peers_.count(agent_name) ? SUCCESS : NOT_FOUND;
}

Status Backend::disconnect(const std::string &agent_name) {
  // `last` is destroyed after the lock is released, because its destructor waits for the peer's remote notifier.
  std::shared_ptr<Peer> last;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto peer = peers_.find(agent_name);
  if (peer != peers_.end()) {
    last = std::move(peer->second);
    peers_.erase(peer);
  }
  return SUCCESS;
}

Status Backend::unload(Memory *memory) {
  delete memory;
  return SUCCESS;
}

Status Backend::describe(const Memory *memory, std::string &text) const {
  const Region &region = *static_cast<const Piece *>(memory)->region;
  text = region.descriptor.empty() ? "1" : "1 " + region.descriptor;
  return SUCCESS;
}

Status Backend::describe_connection(std::string &text) const {
  text = describe_process(mailbox_.name(), notification_server_.address());
  return SUCCESS;
}

Status Backend::load_connection(const std::string &agent_name, const std::string &text) {
  auto peer = std::make_shared<Peer>(text);
  if (has_remote() && (all_remote_ || peer->usable().status == NOT_SUPPORTED))
    peer->use_remote_notifier(answer_limit_);
  if (peer->remote_notifier() && !(peer->device = open_remote_queue(agent_name)))
    peer->refuse({BACKEND, last_error()});
  if (peer->usable().status != SUCCESS)
    log("agent " + agent_name + " cannot be used: " + peer->usable().reason);
  std::lock_guard<std::mutex> lock(mutex_);
  // The previous peer is destroyed after the lock is released.
  peers_[agent_name].swap(peer);
  return SUCCESS;
}

Status Backend::take_notifications(Notifications &notifications) {
  std::lock_guard<std::mutex> lock(mutex_);
  progress();
  const bool was_full = notifications_.size() >= MAX_NOTIFICATIONS;
  for (auto &notification : notifications_)
    notifications.push_back(std::move(notification));
  notifications_.clear();
  if (was_full) {
    changed_.notify_all();
    wake();
  }
  return SUCCESS;
}

Status Backend::notify(const std::string &agent_name, const std::string &message) const {
  std::unique_lock<std::mutex> lock(mutex_);
  if (agent_name == agent) {
    notifications_.emplace_back(agent, message);
    return SUCCESS;
  }
  const auto found = peers_.find(agent_name);
  if (found == peers_.end())
    return NOT_FOUND;
  const std::shared_ptr<Peer> peer = found->second;
  lock.unlock();
  if (peer->remote_notifier()) {
    auto sent = std::make_shared<std::promise<Outcome>>();
    peer->remote_notifier()->send(agent, message, [sent](const Outcome &outcome) { sent->set_value(outcome); });
    return report(agent_name, sent->get_future().get());
  }
  const auto deadline = Clock::now() + answer_limit_;
  for (;;) {
    const Outcome sent = peer->usable().status ? peer->usable() : mailbox_.send(*peer, agent, message);
    if (sent.status == IN_PROGRESS && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    return report(agent_name, sent);
  }
}

bool Backend::open(const Options &options) {
  Settings settings;
  std::string reason = read_settings(settings);
  for (const auto &[name, value] : options) {
    // A program that passes on the defaults of `default_options` has chosen nothing.
    const auto found = settings.find(name);
    // Some programs, among them NIXL's C++ tests, give each backend the options of others, without values.
    if (value.empty() && found == settings.end())
      continue;
    if (reason.empty() && (found == settings.end() || found->second.value != value))
      reason = set(settings, name, {value, "program"});
  }
  if (!reason.empty()) {
    log(reason);
    return false;
  }
  const auto refuse = [&settings](const char *name, const char *remedy) {
    const Setting &setting = settings[name];
    log(std::string("option ") + name + "=" + setting.value + " (" + setting.source + "); " + remedy);
    return false;
  };
  const std::string &local_engine = settings["engine"].value, &remote_engine = settings["remote"].value,
                    &listen = settings["listen"].value, &peers = settings["peers"].value,
                    &ptrace = settings["ptrace"].value, &fallback = settings["fallback"].value;
  const auto is_time = [&settings](const char *name, milliseconds &time) {
    const std::string &value = settings[name].value;
    if (value.empty() || value.size() > 8 || value.find_first_not_of("0123456789") != value.npos)
      return false;
    time = milliseconds(std::stoul(value));
    return true;
  };
  if (!is_time("stall_ms", stall_limit_))
    return refuse("stall_ms", "give a number of milliseconds, of at most 8 digits");
  if (!is_time("answer_ms", answer_limit_) || answer_limit_ == milliseconds(0))
    return refuse("answer_ms", "give a number of milliseconds from 1 on, of at most 8 digits");
  if (!ptrace.empty() && ptrace != "any")
    return refuse("ptrace", "the only allowed value is any");
  if (!peers.empty() && peers != "remote")
    return refuse("peers", "the only allowed value is remote");
  if (!fallback.empty() && fallback != "cpu")
    return refuse("fallback", "the only allowed value is cpu");
  if (remote_engine.empty() != listen.empty() || (remote_engine.empty() && !peers.empty())) {
    log("the option remote needs the option listen, which is an address of this host, and peers and listen need remote");
    return false;
  }
  all_remote_ = !peers.empty();
  if (ptrace == "any" && prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0 && errno != EINVAL) {
    log("option ptrace=any: " + std::generic_category().message(errno));
    return false;
  }
  if (!local_device_.open(local_engine) || (!fallback.empty() && !cpu_device_.open("cpu"))) {
    log(last_error());
    return false;
  }
  if (!remote_engine.empty()) {
    remote_engine_.name = remote_engine;
    if (remote_engine == local_engine)
      remote_engine_.engine = local_device_.engine;
    if (remote_engine == local_engine ? !remote_engine_.describe() : !remote_engine_.open_engine(remote_engine)) {
      log(last_error());
      return false;
    }
    const Outcome opened = notification_server_.open(listen, [this](std::string from, std::string message) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || notifications_.size() < MAX_NOTIFICATIONS; });
      if (!ended_)
        notifications_.emplace_back(std::move(from), std::move(message));
      return !ended_;
    });
    if (opened.status) {
      log(opened.reason);
      return false;
    }
  }
  for (const Device *device : {&local_device_, &remote_engine_})
    if (device->engine.id != 0 && !(device->capabilities & DMA_CAN_REGISTER)) {
      log("engine " + device->name + " cannot register memory of the program");
      return false;
    }
  if (mailbox_.usable().status || event_.get() < 0) {
    log(event_.get() < 0 ? "eventfd fails" : mailbox_.usable().reason);
    return false;
  }
  set_options(values_of(settings));
  static std::atomic_flag told = ATOMIC_FLAG_INIT;
  if (!told.test_and_set())
    log("agent " + agent + ": " + in_force(settings));
  return true;
}

std::shared_ptr<Device> Backend::open_remote_queue(const std::string &agent_name) const {
  const auto close = [this](Device *device) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      remote_queues_.erase(device);
    }
    if (device->is_open() && dma_queue_close(device->queue, 1000) != DMA_OK)
      log(last_error());
    delete device;
  };
  const std::shared_ptr<Device> device(new Device, close);
  device->name = remote_engine_.name + " for agent " + agent_name;
  device->is_remote = true;
  if (dma_queue_open(remote_engine_.engine, nullptr, &device->queue) != DMA_OK)
    return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  remote_queues_.insert(device.get());
  return device;
}

Status Backend::report(const std::string &agent_name, const Outcome &outcome) {
  if (outcome.status == SUCCESS)
    return SUCCESS;
  log("agent " + agent_name + ": " + outcome.reason);
  return outcome.status == IN_PROGRESS ? BACKEND : outcome.status;
}

void Backend::wake() const {
  const uint64_t one = 1;
  // The write fails only if the counter is at its maximum, and in that case the descriptor is already readable.
  (void)!write(event_.get(), &one, sizeof one);
}

Options default_options() {
  Settings settings;
  // A backend reads them again, and reports why this fails.
  (void)read_settings(settings);
  return values_of(settings);
}

Engine *create_engine(const InitParameters &init) { return new Backend(init); }

} // namespace dma_nixl
