// Recovery: failed pieces of a transfer are tried again as their errors advise. After a device was lost, the CPU takes over.
#include "backend_class.hpp"

#include <algorithm>

namespace dma_nixl {
namespace {

// The limits of dma::RetryPolicy: the number of attempts, and the number of faults of a piece after which it is tried again.
constexpr unsigned MAX_ATTEMPTS = 10, MAX_FAULTS = 3;
// The delay after an error that advises to wait doubles with each attempt.
constexpr milliseconds FIRST_DELAY{1}, MAX_DELAY{1000};

// Returns the copies that have failed, if the thread's last failure is the completion of a batch. The list is empty if the
// device may still use the memory.
std::vector<dma_failure> last_failures() {
  size_t count = 0;
  (void)dma_last_failures(nullptr, 0, &count);
  std::vector<dma_failure> failures(count);
  (void)dma_last_failures(failures.data(), count, &count);
  return failures;
}

// Describes the pieces of a transfer that have failed for good. `error` describes the thread's last failure.
std::string summary(const Transfer &transfer, size_t failures, const dma_failure &worst, const dma_error &error) {
  std::string text = "piece " + std::to_string(transfer.first_pieces[worst.index]) + " of a transfer of " +
                     std::to_string(transfer.pieces) + " pieces failed in attempt " + std::to_string(transfer.attempts) +
                     ", the last: " + dma_status_text(worst.status);
  if (worst.native != 0)
    text += " (" + std::string(worst.native == error.native ? error.native_name : "") + " " + std::to_string(worst.native) + ")";
  if (failures > 1)
    text += "; " + std::to_string(failures - 1) + " other copies failed with it";
  return *error.remedy ? text + "; " + error.remedy : text;
}

} // namespace

void Backend::begin_attempts(Transfer &transfer) {
  if (transfer.rest.id != 0 && dma_batch_close(transfer.rest) != DMA_OK)
    log(last_error());
  transfer.rest = {};
  transfer.failed.clear();
  transfer.attempts = 1;
  transfer.retry_at = {};
}

bool Backend::try_again(Transfer &transfer) const {
  Device &device = *transfer.device;
  std::vector<dma_failure> failures = last_failures();
  dma_error error{};
  error.size = sizeof error;
  (void)dma_last_error(&error);
  if (failures.empty()) {
    for (const auto &region : transfer.regions)
      region->is_abandoned = true;
    log("engine " + device.name + ": " + error.text);
    return false;
  }
  const dma_failure *final = nullptr;
  bool waits = false;
  std::vector<FailedPiece> again;
  for (dma_failure &failure : failures) {
    FailedPiece piece{failure.index, 0};
    if (!transfer.failed.empty())
      piece = transfer.failed[failure.index];
    failure.index = piece.index;
    if (failure.status == DMA_DEVICE_LOST)
      lose(device, error.text);
    const dma_retry advice = dma_status_retry(failure.status);
    piece.faults += advice == DMA_RETRY_FEW_TIMES;
    waits |= advice == DMA_RETRY_LATER || advice == DMA_RETRY_AFTER_PROGRESS;
    if (!final && (advice == DMA_RETRY_NEVER || piece.faults > MAX_FAULTS || transfer.attempts >= MAX_ATTEMPTS))
      final = &failure;
    again.push_back(piece);
  }
  if (transfer.cancelled)
    return false;
  const bool goes_over = device.is_lost && has_fallback(device);
  if (final && !goes_over) {
    log("engine " + device.name + ": " + summary(transfer, failures.size(), *final, error));
    return false;
  }
  if (!device.has_failed && !goes_over)
    log("engine " + device.name + ": " + error.text + "; failed pieces are tried again, and this is not logged again");
  device.has_failed = true;
  transfer.failed = std::move(again);
  transfer.attempts++;
  if (goes_over ? !go_over_to_cpu(transfer) : !prepare_rest(transfer))
    return false;
  if (waits && !goes_over) {
    transfer.retry_at = Clock::now() + std::min(FIRST_DELAY * (1 << (transfer.attempts - 2)), MAX_DELAY);
    transfer.runner = Runner::WAITING_LIST;
    device.waiting.push_back(&transfer);
  } else if (device.is_remote) {
    submit_if_reachable(transfer);
  } else {
    submit(transfer);
  }
  return true;
}

void Backend::submit_if_reachable(Transfer &transfer) const {
  transfer.runner = Runner::REMOTE_NOTIFIER;
  remote_calls_++;
  transfer.peer->remote_notifier()->send("", "", [this, &transfer](const Outcome &outcome) {
    std::lock_guard<std::mutex> lock(mutex_);
    remote_calls_--;
    if (outcome.status || transfer.cancelled)
      end(transfer, transfer.cancelled ? CANCELLED : report(transfer.agent, outcome));
    else
      submit(transfer);
  });
}

bool Backend::prepare_rest(Transfer &transfer) {
  if (transfer.rest.id != 0 && dma_batch_close(transfer.rest) != DMA_OK)
    log(last_error());
  transfer.rest = {};
  std::vector<dma_copy> copies;
  for (const FailedPiece &piece : transfer.failed)
    copies.push_back(transfer.copies[piece.index]);
  if (copies.empty() || dma_batch_create(copies.data(), copies.size(), &transfer.rest) == DMA_OK)
    return true;
  log(last_error());
  return false;
}

void Backend::lose(Device &device, const std::string &reason) const {
  if (device.is_lost)
    return;
  device.is_lost = true;
  log("the device of engine " + device.name + " is lost: " + reason +
      (has_fallback(device)  ? "; from now on, the CPU copies within this process"
       : device.is_remote    ? "; all transfers with this agent fail until its metadata is loaded again"
                             : "; all its transfers fail. The option fallback=cpu lets the CPU take over"));
}

bool Backend::go_over_to_cpu(Transfer &transfer) const {
  Device &lost = *transfer.device;
  if (!has_fallback(lost))
    return false;
  const auto refuse = [&lost](const char *why) {
    log("a transfer of the lost device of engine " + lost.name + " fails, because " + why);
    return false;
  };
  std::vector<dma_copy> copies = transfer.copies;
  for (dma_copy &copy : copies)
    for (dma_range *range : {&copy.src, &copy.dst}) {
      const auto region = std::find_if(transfer.regions.begin(), transfer.regions.end(),
                                       [range](const auto &each) { return each->handle.id == range->region.id; });
      if (region == transfer.regions.end() || (*region)->cpu_handle.id == 0)
        return refuse("the CPU cannot reach memory of the device");
      if ((*region)->is_abandoned)
        return refuse("the device may still write to its memory");
      range->region = (*region)->cpu_handle;
    }
  dma_batch batch{};
  if (dma_batch_create(copies.data(), copies.size(), &batch) != DMA_OK)
    return refuse(last_error().c_str());
  close_batch(transfer);
  transfer.copies = std::move(copies);
  transfer.batch = batch;
  transfer.device = &cpu_device_;
  transfer.attempts = 1;
  for (FailedPiece &piece : transfer.failed)
    piece.faults = 0;
  transfer.retry_at = {};
  transfer.runner = Runner::NONE;
  return prepare_rest(transfer);
}

} // namespace dma_nixl
