// Memory: regions of this process, and memory of peers.
#include "backend_class.hpp"

#include "cuda_memory.hpp"
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <sys/random.h>

namespace dma_nixl {

Status Backend::register_memory(const DescribedRange &range, const MemoryType &type, Memory *&memory) {
  Region region{range.address, range.len, type};
  if (type != DRAM && type != VRAM)
    return NOT_SUPPORTED;
  const bool is_shared = type == DRAM && has_remote(), has_two = is_shared && remote_engine_.engine.id != local_device_.engine.id;
  constexpr uint32_t OWN = DMA_READ | DMA_WRITE, SHARED = OWN | DMA_EXPORT_READ | DMA_EXPORT_WRITE;
  void *const start = reinterpret_cast<void *>(range.address);
  dma_status status = type == VRAM
                          ? dma_region_register_device(local_device_.engine, range.address, range.len, OWN, &region.handle)
                          : dma_region_register(local_device_.engine, start, range.len, is_shared && !has_two ? SHARED : OWN, &region.handle);
  if (status == DMA_OK && is_shared) {
    if (has_two)
      status = dma_region_register(remote_engine_.engine, start, range.len, SHARED, &region.remote_handle);
    else
      region.remote_handle = region.handle;
    if (status == DMA_OK)
      status = share(region);
  }
  if (status == DMA_OK && type == DRAM && cpu_device_.is_open())
    status = dma_region_register(cpu_device_.engine, start, range.len, OWN, &region.cpu_handle);
  if (status != DMA_OK) {
    const Status failure = failure_of(status);
    (void)close(region);
    return failure;
  }
  if (type == VRAM) {
    if (has_remote())
      share_device_memory(region);
    if (getrandom(&region.id, sizeof region.id, 0) != sizeof region.id || region.id == 0)
      region.id = range.address;
    region.mark = std::make_unique<std::atomic<uint64_t>>(region.id);
    const auto mark = reinterpret_cast<uintptr_t>(region.mark.get());
    region.descriptor = (region.descriptor.empty() ? "-" : region.descriptor) + " " + std::to_string(mark) + " " +
                        std::to_string(region.id) + " " + describe_device_memory(range.address, range.len);
  }
  auto piece = std::make_unique<Piece>();
  piece->region = std::make_shared<Region>(std::move(region));
  piece->address = range.address;
  piece->len = range.len;
  piece->type = type;
  std::lock_guard<std::mutex> lock(mutex_);
  regions_.insert(piece->region);
  memory = piece.release();
  return SUCCESS;
}

Status Backend::deregister_memory(Memory *memory) {
  const std::unique_ptr<Piece> piece(static_cast<Piece *>(memory));
  std::unique_lock<std::mutex> lock(mutex_);
  regions_.erase(piece->region);
  if (piece->region->mark)
    piece->region->mark->store(0);
  for (Transfer *transfer : std::vector<Transfer *>(transfers_.begin(), transfers_.end())) {
    if (!transfers_.count(transfer) || !transfer->regions.count(piece->region))
      continue;
    transfer->revoked = true;
    wait(lock, *transfer);
    if (transfers_.count(transfer))
      close_batch(*transfer);
  }
  if (close(*piece->region) != DMA_OK) {
    log("the device of engine " + local_device_.name + (has_remote() ? " or " + remote_engine_.name : "") + " never answered, and may still write to memory that the program is about to "
        "free; the program is ended because of that");
    std::abort();
  }
  return SUCCESS;
}

Status Backend::load_remote(const DescribedRange &range, const MemoryType &type, const std::string &agent_name,
                   Memory *&memory) {
  if (range.text.substr(0, 2) != "1 " && range.text != "1")
    return MISMATCH;
  auto piece = std::make_unique<Piece>();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto peer = peers_.find(agent_name);
    if (peer == peers_.end())
      return NOT_FOUND;
    piece->peer = peer->second;
  }
  if (piece->peer->remote_notifier())
    import(*piece, range);
  else if (type == VRAM)
    import_device_memory(*piece, range);
  piece->address = range.address;
  piece->len = range.len;
  piece->type = type;
  memory = piece.release();
  return SUCCESS;
}

Status Backend::load_local(Memory *registered, Memory *&memory) {
  memory = new Piece(*static_cast<Piece *>(registered));
  return SUCCESS;
}

void Backend::share_device_memory(Region &region) const {
  constexpr uint32_t RIGHTS = DMA_READ | DMA_WRITE | DMA_EXPORT_READ | DMA_EXPORT_WRITE;
  int fd = -1;
  uint64_t offset = 0;
  dma_status status = dma_region_dmabuf(region.handle, &fd, &offset);
  if (status == DMA_OK) {
    const File file(fd);
    status = dma_region_register_dmabuf(remote_engine_.engine, fd, offset, region.len, RIGHTS, &region.remote_handle);
  }
  if (status == DMA_OK)
    status = share(region);
  if (status != DMA_OK) {
    region.remote_refusal = last_error();
    region.descriptor.clear();
    log("VRAM that was registered cannot be copied between hosts: " + region.remote_refusal);
  }
}

dma_status Backend::share(Region &region) {
  size_t len = 0;
  dma_status status = dma_region_export(region.remote_handle, 0, region.len, DMA_READ | DMA_WRITE, &region.exported);
  if (status == DMA_OK)
    status = dma_export_descriptor(region.exported, nullptr, 0, &len);
  if (status != DMA_OK && status != DMA_OUT_OF_RANGE)
    return status;
  std::vector<unsigned char> bytes(len);
  status = dma_export_descriptor(region.exported, bytes.data(), bytes.size(), &len);
  region.descriptor = hex(bytes.data(), bytes.size());
  return status;
}

dma_status Backend::close(const Region &region) {
  dma_status result = DMA_OK;
  const auto note = [&result](dma_status status) {
    if (status != DMA_OK) {
      log(last_error());
      result = status;
    }
  };
  if (region.exported.id != 0)
    note(dma_export_revoke(region.exported, 5000));
  if (region.remote_handle.id != region.handle.id && region.remote_handle.id != 0)
    note(dma_region_close(region.remote_handle));
  for (const dma_region handle : {region.handle, region.cpu_handle})
    if (handle.id != 0)
      note(dma_region_close(handle));
  return result;
}

void Backend::import(Piece &piece, const DescribedRange &range) const {
  std::string bytes;
  dma_region handle{};
  piece.refusal = piece.peer->usable();
  if (piece.refusal.status)
    return;
  // The description of device memory has further words.
  const std::string exported = range.text.size() < 3 ? "-" : range.text.substr(2, range.text.find(' ', 2) - 2);
  if (exported == "-" || !from_hex(exported, bytes)) {
    piece.refusal = {NOT_SUPPORTED, "its memory is not registered for peers on other hosts"};
    return;
  }
  dma_region_info info{};
  info.size = sizeof info;
  const dma_status status = dma_region_import(remote_engine_.engine, bytes.data(), bytes.size(), &handle);
  if (status != DMA_OK) {
    piece.refusal = {status == DMA_REVOKED ? DISCONNECTED : BACKEND, last_error()};
    return;
  }
  piece.import = std::make_shared<Import>(handle);
  if (dma_region_describe(handle, &info) != DMA_OK || info.len != range.len) {
    piece.import = nullptr;
    piece.refusal = {MISMATCH, "its memory has another length than it was registered with"};
  }
}

void Backend::import_device_memory(Piece &piece, const DescribedRange &range) const {
  std::istringstream fields(range.text.substr(1));
  uintptr_t mark = 0;
  uint64_t id = 0;
  std::string exported, description;
  std::getline(fields >> exported >> mark >> id >> std::ws, description);
  dma_engine_info info{};
  info.size = sizeof info;
  if (piece.peer->usable().status)
    piece.refusal = piece.peer->usable();
  else if (!fields)
    piece.refusal = {MISMATCH, "its description is of another version of this plugin"};
  else if (!(local_device_.capabilities & DMA_CAN_REGISTER_DEVICE) || dma_engine_describe(local_device_.engine, &info) != DMA_OK)
    piece.refusal = {NOT_SUPPORTED, "its memory is on a GPU, which the engine " + local_device_.name +
                                        " of this agent cannot access; give it the option engine=cuda"};
  if (piece.refusal.status)
    return;
  // CUDA opens no memory of the same process.
  OpenedMemory opened{{}, range.address};
  if (!piece.peer->is_self())
    opened = open_device_memory(description, info.device);
  dma_region handle{};
  if (opened.outcome.status)
    piece.refusal = opened.outcome;
  else if (dma_region_register_device(local_device_.engine, opened.address, range.len, DMA_READ | DMA_WRITE, &handle) != DMA_OK)
    piece.refusal = {BACKEND, last_error()};
  if (piece.refusal.status)
    return;
  piece.import = std::make_shared<Import>(handle);
  piece.import->owner = std::move(opened.owner);
  piece.import->mark = mark;
  piece.import->id = id;
}

Outcome Backend::check_memory(const Transfer &transfer) {
  for (const auto &import : transfer.imports) {
    uint64_t found = 0;
    const std::vector<iovec> ours{{&found, sizeof found}}, theirs{{reinterpret_cast<void *>(import->mark), sizeof found}};
    const Outcome read = transfer.peer->copy(READ, ours, theirs, {}, sizeof found);
    // If the system refuses access to the peer's memory, only the peer's end is detected.
    if (read.status == NOT_ALLOWED)
      continue;
    if (read.status == DISCONNECTED)
      return read;
    if (read.status || found != import->id)
      return {INVALID, "it has deregistered its device memory"};
  }
  return transfer.peer->has_exited() ? Outcome{DISCONNECTED, "it has exited"} : Outcome{};
}

std::shared_ptr<Region> Backend::registered(const Piece &piece, const Range &range) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (regions_.count(piece.region))
    return piece.region;
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const std::shared_ptr<Region> &region) {
    return region->type == piece.type && contains(region->address, region->len, range);
  });
  return found == regions_.end() ? nullptr : *found;
}

} // namespace dma_nixl
