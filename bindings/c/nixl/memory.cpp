// Memory: regions of this process, and memory of peers.
#include "backend_class.hpp"

#include <algorithm>
#include <cstdlib>

namespace dma_nixl {

Status Backend::register_memory(const DescribedRange &range, const MemoryType &type, Memory *&memory) {
  Region region{range.address, range.len, type};
  if (type != DRAM && type != VRAM)
    return NOT_SUPPORTED;
  const bool is_shared = type == DRAM && remote_device_.is_open(), has_two = is_shared && remote_device_.engine.id != local_device_.engine.id;
  constexpr uint32_t OWN = DMA_READ | DMA_WRITE, SHARED = OWN | DMA_EXPORT_READ | DMA_EXPORT_WRITE;
  void *const start = reinterpret_cast<void *>(range.address);
  dma_status status = type == VRAM
                          ? dma_region_register_device(local_device_.engine, range.address, range.len, OWN, &region.handle)
                          : dma_region_register(local_device_.engine, start, range.len, is_shared && !has_two ? SHARED : OWN, &region.handle);
  if (status == DMA_OK && is_shared) {
    if (has_two)
      status = dma_region_register(remote_device_.engine, start, range.len, SHARED, &region.remote_handle);
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
  for (Transfer *transfer : std::vector<Transfer *>(transfers_.begin(), transfers_.end())) {
    if (!transfers_.count(transfer) || !transfer->regions.count(piece->region))
      continue;
    transfer->revoked = true;
    wait(lock, *transfer);
    if (transfers_.count(transfer))
      close_batch(*transfer);
  }
  if (close(*piece->region) != DMA_OK) {
    log("the device of engine " + local_device_.name + (remote_device_.is_open() ? " or " + remote_device_.name : "") + " never answered, and may still write to memory that the program is about to "
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
  if (range.text.size() < 3 || !from_hex(range.text.substr(2), bytes)) {
    piece.refusal = {NOT_SUPPORTED, "its memory is not registered for peers on other hosts"};
    return;
  }
  dma_region_info info{};
  info.size = sizeof info;
  const dma_status status = dma_region_import(remote_device_.engine, bytes.data(), bytes.size(), &handle);
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
