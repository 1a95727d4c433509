#include "tessera/comm/recording.hpp"

#include <utility>

#include "detail/operation.hpp"

namespace tessera::comm {

RecordingCollectives::RecordingCollectives(std::unique_ptr<Collectives> inner)
    : inner_(std::move(inner)) {}

std::unique_ptr<RecordingCollectives> make_recording(std::unique_ptr<Collectives> inner) {
  return std::make_unique<RecordingCollectives>(std::move(inner));
}

std::vector<CollectiveRecord> RecordingCollectives::records() const {
  std::lock_guard lock(mutex_);
  return records_;
}

std::size_t RecordingCollectives::bytes_sent() const {
  std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (auto const& r : records_) sum += r.bytes_sent;
  return sum;
}

void RecordingCollectives::clear() {
  std::lock_guard lock(mutex_);
  records_.clear();
}

void RecordingCollectives::keep(CollectiveRecord record) {
  record.bytes_to_peer[static_cast<std::size_t>(rank())] = 0;
  for (auto const bytes : record.bytes_to_peer) record.bytes_sent += bytes;
  std::lock_guard lock(mutex_);
  records_.push_back(std::move(record));
}

void RecordingCollectives::record(char const* operation, std::int64_t numel, Dtype dtype, To to,
                                  std::int64_t elements_each, int root) {
  std::size_t const each = static_cast<std::size_t>(elements_each) * size_of(dtype);
  CollectiveRecord r{operation, numel, dtype, 0,
                     std::vector<std::size_t>(static_cast<std::size_t>(size()), 0)};
  if (to == To::root)
    r.bytes_to_peer[static_cast<std::size_t>(root)] = each;
  else if (to == To::each_peer || rank() == root)
    r.bytes_to_peer.assign(r.bytes_to_peer.size(), each);
  keep(std::move(r));
}

std::shared_ptr<void> RecordingCollectives::allocate(std::string const& name,
                                                     memory::Purpose purpose, std::size_t bytes) {
  return inner_->allocate(name, purpose, bytes);
}

Pending RecordingCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  record("broadcast", data.numel(), data.dtype(), To::each_peer_if_root, data.numel(), root);
  return inner_->broadcast(data, root, std::move(after));
}

Pending RecordingCollectives::all_reduce(memory::TensorView data, ReduceOp op,
                                         memory::Event after) {
  CollectiveRecord r{"all_reduce", data.numel(), data.dtype(), 0, {}};
  auto const own = detail::slice_of(data.numel(), size(), rank()).count;
  for (int q = 0; q < size(); ++q)
    r.bytes_to_peer.push_back(
        static_cast<std::size_t>(detail::slice_of(data.numel(), size(), q).count + own) *
        size_of(data.dtype()));
  keep(std::move(r));
  return inner_->all_reduce(data, op, std::move(after));
}

Pending RecordingCollectives::reduce(memory::TensorView data, ReduceOp op, int root,
                                     memory::Event after) {
  record("reduce", data.numel(), data.dtype(), To::root, data.numel(), root);
  return inner_->reduce(data, op, root, std::move(after));
}

Pending RecordingCollectives::reduce_scatter(memory::TensorView in, Blocks blocks,
                                             memory::TensorView out, bool accumulate,
                                             memory::Event after) {
  record("reduce_scatter", blocks.count * size(), in.dtype(), To::each_peer, blocks.count);
  return inner_->reduce_scatter(in, blocks, out, accumulate, std::move(after));
}

Pending RecordingCollectives::all_gather(memory::TensorView inout, Blocks blocks,
                                         memory::Event after) {
  record("all_gather", blocks.count * size(), inout.dtype(), To::each_peer, blocks.count);
  return inner_->all_gather(inout, blocks, std::move(after));
}

Pending RecordingCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out,
                                         Blocks blocks, memory::Event after) {
  record("all_gather", blocks.count * size(), out.dtype(), To::each_peer, blocks.count);
  return inner_->all_gather(in, out, blocks, std::move(after));
}

Pending RecordingCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                                      memory::Event after) {
  record("scatter", out.numel() * size(), out.dtype(), To::each_peer_if_root, out.numel(), root);
  return inner_->scatter(in, out, root, std::move(after));
}

Pending RecordingCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root,
                                     memory::Event after) {
  record("gather", in.numel() * size(), in.dtype(), To::root, in.numel(), root);
  return inner_->gather(in, out, root, std::move(after));
}

}  // namespace tessera::comm
