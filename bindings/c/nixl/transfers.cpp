// Transfers: prepared, posted, and executed by a device or by threads.
#include "backend_class.hpp"

#include <algorithm>
#include <poll.h>
#include <unistd.h>

namespace dma_nixl {

namespace {

// Copies to other processes up to this many bytes happen within the call, because waking a thread takes longer.
constexpr size_t INLINE_BYTES = 256 << 10;
// A larger copy is divided into slices of this length, each copied by one thread.
constexpr size_t SLICE_BYTES = 1 << 20;

bool follows(const dma_range &range, const dma_range &before) {
  return range.region.id == before.region.id && range.offset == before.offset + before.len;
}

// Adds piece `number` of a transfer to its copies. A piece whose source and destination follow those of the piece before
// becomes part of its copy, because a device needs about as long for a descriptor as for some KiB of bytes.
void add_copy(Transfer &transfer, size_t number, const Range &local, const Range &remote, const dma_copy &copy) {
  // Pieces that do not overlap may overlap as one copy, which the engine refuses. Regions do not tell, because memory can be
  // registered twice.
  const size_t distance = local.address < remote.address ? remote.address - local.address : local.address - remote.address;
  const bool same_process = !transfer.peer || transfer.peer->is_self();
  if (!transfer.copies.empty()) {
    dma_copy &last = transfer.copies.back();
    const bool may_overlap = same_process && distance < last.src.len + copy.src.len;
    if (!may_overlap && follows(copy.src, last.src) && follows(copy.dst, last.dst)) {
      last.src.len += copy.src.len;
      last.dst.len += copy.dst.len;
      return;
    }
  }
  transfer.copies.push_back(copy);
  transfer.first_pieces.push_back(number);
}

// Adds a piece to a copy by system calls, in the same way.
void add_piece(Transfer &transfer, const Range &local, const Range &remote) {
  const auto follows = [](const std::vector<iovec> &pieces, const Range &range) {
    return reinterpret_cast<uintptr_t>(pieces.back().iov_base) + pieces.back().iov_len == range.address;
  };
  if (!transfer.local.empty() && follows(transfer.local, local) && follows(transfer.remote, remote)) {
    transfer.local.back().iov_len += local.len;
    transfer.remote.back().iov_len += remote.len;
    return;
  }
  transfer.local.push_back({reinterpret_cast<void *>(local.address), local.len});
  transfer.remote.push_back({reinterpret_cast<void *>(remote.address), remote.len});
}

// Returns the key of a transfer's way for estimates. All peers on other hosts are one way.
const void *way_of(const Transfer &transfer, const Device &remote_engine) {
  return transfer.device && transfer.device->is_remote ? &remote_engine : transfer.device;
}

size_t count_of_copies(const Transfer &transfer) { return transfer.device ? transfer.copies.size() : transfer.local.size(); }

} // namespace

Status Backend::prepare(const Direction &direction, const List<MemoryRange> &local, const List<MemoryRange> &remote,
                        const std::string &agent_name, Handle *&handle, const PostOptions *) const {
  if (local.size() == 0 || local.size() != remote.size() || direction > WRITE)
    return INVALID;
  auto transfer = std::make_unique<Transfer>();
  transfer->direction = direction;
  transfer->agent = agent_name;
  transfer->pieces = local.size();
  for (size_t at = 0; at < local.size(); at++) {
    const auto *ours = static_cast<const Piece *>(local[at].memory), *theirs = static_cast<const Piece *>(remote[at].memory);
    if (!ours || !theirs || !ours->region || local[at].len != remote[at].len || !ours->contains(local[at]) ||
        !theirs->contains(remote[at])) {
      log("piece " + std::to_string(at) + " of a transfer is not within registered memory, or its lengths differ");
      return INVALID;
    }
    if (at > 0 && theirs->peer != transfer->peer)
      return INVALID;
    transfer->peer = theirs->peer;
    transfer->regions.insert(ours->region);
    transfer->bytes += local[at].len;
    if (theirs->peer) {
      if (const Status status = check_peer(agent_name, *theirs, *ours))
        return status;
      if (theirs->import) {
        transfer->imports.insert(theirs->import);
        const dma_region own = theirs->peer->remote_notifier() ? ours->region->remote_handle : ours->region->handle;
        const dma_range from{own, local[at].address - ours->address, local[at].len};
        const dma_range to{theirs->import->handle, remote[at].address - theirs->address, remote[at].len};
        add_copy(*transfer, at, local[at], remote[at], direction == WRITE ? dma_copy{from, to, 0} : dma_copy{to, from, 0});
        continue;
      }
      add_piece(*transfer, local[at], remote[at]);
      continue;
    }
    const std::shared_ptr<Region> target = registered(*theirs, remote[at]);
    if (!target) {
      log("piece " + std::to_string(at) + " of a transfer is in memory that was deregistered");
      return INVALID;
    }
    transfer->regions.insert(target);
    const dma_range from{ours->region->handle, local[at].address - ours->address, local[at].len};
    const dma_range to{target->handle, remote[at].address - target->address, remote[at].len};
    add_copy(*transfer, at, local[at], remote[at], direction == WRITE ? dma_copy{from, to, 0} : dma_copy{to, from, 0});
  }
  if (!transfer->copies.empty()) {
    transfer->device = transfer->peer && transfer->peer->remote_notifier() ? transfer->peer->device.get() : &local_device_;
    const dma_status status = dma_batch_create(transfer->copies.data(), transfer->copies.size(), &transfer->batch);
    if (status != DMA_OK)
      return failure_of(status);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  transfers_.insert(transfer.get());
  handle = transfer.release();
  return SUCCESS;
}

Status Backend::post(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &, Handle *&handle,
                     const PostOptions *options) const {
  Transfer &transfer = *static_cast<Transfer *>(handle);
  std::unique_lock<std::mutex> lock(mutex_);
  if (transfer.runner != Runner::NONE)
    return ACTIVE;
  if (transfer.revoked) {
    log("a transfer with memory that was deregistered");
    return INVALID;
  }
  transfer.notifies = options && options->has_notification;
  transfer.message = transfer.notifies ? options->notification : "";
  transfer.status = IN_PROGRESS;
  transfer.failure = {};
  transfer.mailbox_deadline = {};
  transfer.posted_at = Clock::now();
  if (transfer.device) {
    if (is_on_device_of_host(transfer)) {
      const Status status = report(transfer.agent, check_memory(transfer));
      if (status) {
        end(transfer, status);
        return status;
      }
    }
    begin_attempts(transfer);
    submit(transfer);
    progress();
    if (transfer.has_work())
      work(lock, transfer);
    return transfer.status;
  }
  transfer.next = {};
  transfer.runner = Runner::THREADS;
  if (transfer.bytes <= INLINE_BYTES)
    while (transfer.has_work() && !transfer.waits_for_mailbox())
      work(lock, transfer);
  if (transfer.runner == Runner::THREADS) {
    jobs_.push_back(&transfer);
    wake();
  }
  return transfer.status;
}

Status Backend::check(Handle *handle) const {
  Transfer &transfer = *static_cast<Transfer *>(handle);
  std::unique_lock<std::mutex> lock(mutex_);
  if (!transfer.has_work() && transfer.runner != Runner::NONE)
    progress();
  if (transfer.has_work())
    work(lock, transfer);
  return transfer.status;
}

Status Backend::estimate(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &,
                         Handle *const &handle, std::chrono::microseconds &time, std::chrono::microseconds &margin, int &method,
                         const void *) const {
  if (!handle)
    return INVALID;
  const Transfer &transfer = *static_cast<const Transfer *>(handle);
  const std::lock_guard<std::mutex> lock(mutex_);
  Estimate found;
  if (!costs_.estimate(way_of(transfer, remote_engine_), transfer.direction, transfer.bytes, count_of_copies(transfer), found))
    return NOT_FOUND;
  time = std::chrono::ceil<std::chrono::microseconds>(found.time);
  margin = std::chrono::ceil<std::chrono::microseconds>(found.margin);
  method = 0; // NIXL knows only one method.
  return SUCCESS;
}

Status Backend::release(Handle *handle) const {
  const std::unique_ptr<Transfer> transfer(static_cast<Transfer *>(handle));
  std::unique_lock<std::mutex> lock(mutex_);
  transfer->cancelled = true;
  wait(lock, *transfer);
  transfers_.erase(transfer.get());
  close_batch(*transfer);
  return SUCCESS;
}

Status Backend::check_peer(const std::string &agent_name, const Piece &theirs, const Piece &ours) const {
  const bool is_remote = theirs.peer->remote_notifier() != nullptr;
  if (is_remote && ours.region->remote_handle.id == 0)
    return report(agent_name, {NOT_SUPPORTED, "VRAM of this process cannot be copied between hosts: " + ours.region->remote_refusal});
  if (!is_remote && theirs.type == DRAM && ours.type != DRAM)
    return report(agent_name, {NOT_SUPPORTED, "the device of this process does not reach DRAM of another process; let the other "
                                              "process start the transfer, because its device reaches VRAM of this one"});
  if ((is_remote || theirs.type == VRAM) && !theirs.import)
    return report(agent_name, theirs.refusal);
  return report(agent_name, theirs.peer->usable());
}

void Backend::close_batch(Transfer &transfer) const {
  for (dma_batch *batch : {&transfer.batch, &transfer.rest}) {
    if (batch->id != 0 && dma_batch_close(*batch) != DMA_OK)
      log(last_error());
    *batch = {};
  }
}

void Backend::end(Transfer &transfer, Status status) const {
  if (transfer.runner == Runner::THREADS)
    jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &transfer), jobs_.end());
  transfer.status = status;
  transfer.runner = Runner::NONE;
  if (status == SUCCESS)
    costs_.note(way_of(transfer, remote_engine_), transfer.direction, transfer.bytes, count_of_copies(transfer),
                Clock::now() - transfer.posted_at);
  changed_.notify_all();
}

void Backend::submit(Transfer &transfer) const {
  if (transfer.device->is_lost && !go_over_to_cpu(transfer)) {
    end(transfer, BACKEND);
    return;
  }
  Device &device = *transfer.device;
  const dma_batch batch = transfer.rest.id != 0 ? transfer.rest : transfer.batch;
  const dma_status status = dma_queue_submit(device.queue, batch, reinterpret_cast<uint64_t>(&transfer));
  if (status == DMA_QUEUE_FULL) {
    if (transfer.runner != Runner::WAITING_LIST)
      device.waiting.push_back(&transfer);
    transfer.runner = Runner::WAITING_LIST;
  } else if (status == DMA_DEVICE_LOST && !device.is_lost) {
    lose(device, last_error());
    submit(transfer);
  } else if (status != DMA_OK) {
    end(transfer, failure_of(status));
  } else {
    if (device.on_device++ == 0)
      device.idle_for = {};
    device.bytes_on_device += transfer.bytes;
    transfer.runner = Runner::DEVICE;
  }
}

void Backend::progress() const {
  for (Device *device : {&local_device_, &cpu_device_})
    if (device->is_open())
      progress(*device);
  for (Device *device : remote_queues_)
    if (device->on_device > 0 || !device->waiting.empty())
      progress(*device);
}

void Backend::progress(Device &device) const {
  const auto now = Clock::now();
  device.idle_for += std::min<Clock::duration>(now - device.last_poll, MAX_GAP);
  device.last_poll = now;
  // With a capacity of 1, the thread's last error belongs to this completion.
  dma_completion done;
  size_t count = 0;
  while (dma_queue_poll(device.queue, &done, 1, &count) == DMA_OK && count == 1) {
    Transfer &transfer = *reinterpret_cast<Transfer *>(done.token);
    device.on_device--;
    device.bytes_on_device -= transfer.bytes;
    device.idle_for = {};
    transfer.runner = Runner::NONE;
    if (done.status != DMA_OK && try_again(transfer))
      continue;
    const Status status = done.status == DMA_OK ? SUCCESS : status_of(done.status);
    if (is_on_device_of_host(transfer)) {
      end_on_device_of_host(transfer, status);
      continue;
    }
    if (transfer.peer && (status != SUCCESS || transfer.notifies)) {
      notify_remote(transfer, status);
      continue;
    }
    if (status == SUCCESS && transfer.notifies)
      notifications_.emplace_back(agent, transfer.message);
    end(transfer, status);
  }
  for (size_t at = 0; at < device.waiting.size();) {
    Transfer &transfer = *device.waiting[at];
    if (now < transfer.retry_at) {
      at++;
      continue;
    }
    submit(transfer);
    // The transfer may have gone over to the CPU, and wait for the CPU's queue.
    if (transfer.runner == Runner::WAITING_LIST && transfer.device == &device)
      break;
    device.waiting.erase(device.waiting.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // Even a slow device copies at least 100 MB/s.
  if (device.on_device > 0 && device.idle_for > stall_limit_ + (device.is_remote ? HOST_TIMEOUT : milliseconds(0)) +
                                                    milliseconds(device.bytes_on_device / 100'000)) {
    lose(device, "it is stalled, and its queue is stopped");
    if (dma_queue_stop(device.queue, 0) != DMA_OK)
      log(last_error());
    device.idle_for = {};
  }
}

void Backend::end_on_device_of_host(Transfer &transfer, Status status) const {
  const Outcome checked = check_memory(transfer);
  if (checked.status || status || !transfer.notifies || transfer.cancelled) {
    end(transfer, transfer.cancelled ? CANCELLED : checked.status ? report(transfer.agent, checked) : status);
    return;
  }
  // A thread sends the notification, as after copies by threads.
  transfer.runner = Runner::THREADS;
  jobs_.push_back(&transfer);
  wake();
}

void Backend::notify_remote(Transfer &transfer, Status status) const {
  transfer.runner = Runner::REMOTE_NOTIFIER;
  remote_calls_++;
  const bool sends = status == SUCCESS && !transfer.cancelled;
  transfer.peer->remote_notifier()->send(sends ? agent : "", sends ? transfer.message : "", [this, &transfer, status](const Outcome &outcome) {
    std::lock_guard<std::mutex> lock(mutex_);
    remote_calls_--;
    end(transfer, transfer.cancelled ? CANCELLED : outcome.status ? report(transfer.agent, outcome) : status);
  });
}

void Backend::wait(std::unique_lock<std::mutex> &lock, Transfer &transfer) const {
  unsigned polls = 0;
  while (transfers_.count(&transfer) && transfer.runner != Runner::NONE) {
    if (transfer.runner == Runner::REMOTE_NOTIFIER) {
      changed_.wait_for(lock, milliseconds(1));
      continue;
    }
    if (transfer.runner == Runner::THREADS) {
      if (transfer.has_work())
        work(lock, transfer);
      if (transfer.runner == Runner::THREADS && (!transfer.has_work() || transfer.waits_for_mailbox()))
        changed_.wait_for(lock, milliseconds(1));
      continue;
    }
    progress();
    if (transfer.runner == Runner::NONE)
      break;
    lock.unlock();
    if (++polls > 1000)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      std::this_thread::yield();
    lock.lock();
  }
}

bool Backend::work(std::unique_lock<std::mutex> &lock, Transfer &transfer) const {
  if (transfer.cancelled || transfer.failure.status)
    transfer.next = {transfer.local.size(), 0};
  transfer.running++;
  if (!transfer.next.is_end(transfer.local)) {
    const Position begin = transfer.next;
    const size_t len = transfer.next.advance(transfer.local, SLICE_BYTES);
    lock.unlock();
    const Outcome copied = transfer.peer->copy(transfer.direction, transfer.local, transfer.remote, begin, len);
    lock.lock();
    if (copied.status)
      transfer.failure = copied;
  }
  if (transfer.running > 1 || !(transfer.next.is_end(transfer.local) || transfer.failure.status)) {
    transfer.running--;
    return true;
  }
  Outcome outcome = transfer.failure;
  if (transfer.notifies && !transfer.cancelled && !outcome.status) {
    lock.unlock();
    outcome = mailbox_.send(*transfer.peer, agent, transfer.message);
    lock.lock();
    const auto now = Clock::now();
    if (outcome.status == IN_PROGRESS && !transfer.waits_for_mailbox())
      transfer.mailbox_deadline = now + answer_limit_;
    if (outcome.status == IN_PROGRESS && now < transfer.mailbox_deadline && !transfer.cancelled) {
      transfer.running--;
      return false;
    }
  }
  transfer.running--;
  end(transfer, transfer.cancelled ? CANCELLED : report(transfer.agent, outcome));
  return true;
}

void Backend::run() {
  size_t full = 0; // Consecutive transfers whose peer's mailbox is full.
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (ended_)
      return;
    std::pair<std::string, std::string> notification;
    while (notifications_.size() < MAX_NOTIFICATIONS && mailbox_.receive(notification))
      notifications_.push_back(std::move(notification));
    const bool is_full = notifications_.size() >= MAX_NOTIFICATIONS;
    // If all transfers wait for mailboxes or for threads that check them, they are tried every millisecond.
    int timeout_ms = jobs_.empty() ? -1 : 1;
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), [](const Transfer *each) { return each->has_work(); });
    if (job != jobs_.end()) {
      Transfer &transfer = **job;
      // Transfers take turns.
      std::rotate(job, job + 1, jobs_.end());
      full = work(lock, transfer) ? 0 : full + 1;
      if (full < jobs_.size())
        timeout_ms = 0;
      else
        full = 0;
    }
    lock.unlock();
    pollfd sources[] = {{event_.get(), POLLIN, 0}, {is_full ? -1 : mailbox_.descriptor(), POLLIN, 0}};
    if (poll(sources, 2, timeout_ms) > 0 && sources[0].revents) {
      uint64_t wakes;
      (void)!read(event_.get(), &wakes, sizeof wakes);
    }
  }
}

} // namespace dma_nixl
