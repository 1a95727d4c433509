#include "tessera/train/step/verification.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/kernels/elementwise/hash.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {
namespace {

using Hashes = std::vector<std::uint64_t>;
using memory::position;
using memory::UnitIndex;

constexpr std::chrono::minutes hash_deadline{10};
constexpr std::size_t of_weights = 0, of_gradients = 1;

std::uint64_t digest(Hashes const& hashes) {
  return kernels::combined_hash(hashes.data(), hashes.size());
}

/// The first place in which two lists of the same length differ.
std::size_t first_difference(Hashes const& a, Hashes const& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// The lists of every rank, which have the same length. Blocking.
std::vector<Hashes> hashes_of_ranks(comm::Collectives& comm, Hashes const& mine) {
  auto const count = std::ssize(mine);
  Hashes all(mine.size() * static_cast<std::size_t>(comm.size()));
  memory::ConstTensorView const in(mine.data(), Dtype::int64, {count});
  memory::TensorView const out(all.data(), Dtype::int64, {std::ssize(all)});
  comm::SynchronousCalls const synchronous;
  comm.wait(comm.all_gather(in, out, {count, count, 0}, {}));
  std::vector<Hashes> lists;
  for (auto at = all.begin(); at != all.end(); at += count) lists.emplace_back(at, at + count);
  return lists;
}

/// Takes the next @p count numbers of a list.
Hashes take_hashes(Hashes::const_iterator& from, std::size_t count) {
  auto const begin = from;
  from += static_cast<std::ptrdiff_t>(count);
  return {begin, from};
}

/// The value that more than half of the ranks have; none: no value is that frequent.
std::optional<std::uint64_t> majority(Hashes const& values) {
  std::map<std::uint64_t, std::size_t> counts;
  for (auto const value : values)
    if (2 * ++counts[value] > values.size()) return value;
  return std::nullopt;
}

/// Keeps what was found first of each rank.
void drop_repeated(std::vector<Finding>& found) {
  std::set<int> named;
  std::erase_if(found, [&](Finding const& f) { return !named.insert(f.rank).second; });
}

/// Compares three computations of the micro-batch of rank @p of.
std::optional<Finding> finding_of(std::vector<RankHashes> const& ranks, Shifts shifts, int of) {
  int const n = static_cast<int>(ranks.size());
  auto const number = [n](int rank) { return static_cast<std::size_t>((rank + n) % n); };
  int const verifier = static_cast<int>(number(of - shifts.first));
  auto const &own = ranks[number(of)].own, &first = ranks[number(verifier)].first,
             &second = ranks[number(of - shifts.second)].second;
  if (own == first) return std::nullopt;
  Finding out{.what = Finding::What::results, .unit = first_difference(own, first)};
  if (second == own) out.rank = verifier;
  if (second == first) out.rank = of;
  return out;
}

char const* what_text(Finding::What what) {
  constexpr char const* texts[] = {"weights", "results", "states",
                                   "master weights or optimizer states"};
  return texts[static_cast<std::size_t>(what)];
}

}  // namespace

Shifts shifts_of(std::int64_t verification, int ranks) {
  if (ranks <= 2) return {1, 0};
  int const others = ranks - 1;
  int const first = 1 + static_cast<int>(verification % others);
  return {first, 1 + first % others};
}

std::vector<Finding> differing_copies(std::vector<Hashes> const& values, int copies,
                                      Finding::What what) {
  std::vector<Finding> found;
  auto const ranks = values.size(), step = static_cast<std::size_t>(copies);
  for (std::size_t unit = 0; unit < values.front().size(); ++unit)
    for (std::size_t first = 0; first < std::min(step, ranks); ++first) {
      Hashes of_copies;
      for (auto rank = first; rank < ranks; rank += step) of_copies.push_back(values[rank][unit]);
      auto const expected = majority(of_copies);
      if (!expected) found.push_back({.what = what, .unit = unit});
      for (auto rank = first; expected && rank < ranks; rank += step)
        if (values[rank][unit] != *expected)
          found.push_back({.what = what, .rank = static_cast<int>(rank), .unit = unit});
    }
  drop_repeated(found);
  return found;
}

std::vector<Finding> changed_states(Hashes const& of_ranks) {
  std::vector<Finding> found;
  for (std::size_t r = 0; r < of_ranks.size(); ++r)
    if (of_ranks[r] > 0)
      found.push_back({Finding::What::changed_states, static_cast<int>(r), of_ranks[r] - 1});
  return found;
}

std::vector<Finding> findings(std::vector<RankHashes> const& ranks, Shifts shifts) {
  std::vector<Hashes> weights;
  for (auto const& rank : ranks) weights.push_back(rank.weights);
  if (auto found = differing_copies(weights, 1, Finding::What::weights); !found.empty())
    return found;
  std::vector<Finding> found;
  for (int of = 0; of < static_cast<int>(ranks.size()); ++of)
    if (auto const one = finding_of(ranks, shifts, of)) found.push_back(*one);
  drop_repeated(found);
  // one of two ranks that is always wrong agrees with itself
  if (ranks.size() == 2 && found.size() == 2)
    return std::vector{Finding{found.front().what, -1, found.front().unit}};
  return found;
}

HashingParams::HashingParams(std::vector<memory::UnitSpec> const& units, zero::Engine& engine,
                             memory::Queue& compute)
    : engine_(engine),
      compute_(compute),
      trained_(zero::trained_parameters(units)),
      units_(units.size()),
      hashes_("hashes of weights and gradients", memory::Purpose::workspace,
              2 * units.size() * kernels::hash_parts * sizeof(std::uint64_t),
              memory::memory_space_of(compute)) {
  for (auto const& unit : units) parameters_.push_back(unit.parameters.size());
}

void HashingParams::begin(Gradients gradients) {
  mode_ = gradients;
  for (auto& unit : units_) unit = {};
  for (auto& scratch : scratch_)
    scratch.is_free = true;  // an interrupted pass may have left some open
  memory::zero(compute_, hashes_.data(), hashes_.bytes());
}

std::uint64_t* HashingParams::hash(std::size_t kind, UnitIndex unit) const {
  return static_cast<std::uint64_t*>(hashes_.data()) +
         (kind * units_.size() + position(unit)) * kernels::hash_parts;
}

std::vector<std::uint64_t> HashingParams::read(std::size_t kind) const {
  Hashes parts(units_.size() * kernels::hash_parts);
  memory::copy(compute_, parts.data(), hash(kind, memory::first_unit),
               parts.size() * sizeof(std::uint64_t));
  compute_.record().wait("the hashes of a pass", hash_deadline);
  Hashes out;
  for (std::size_t u = 0; u < units_.size(); ++u)
    out.push_back(
        kernels::combined_hash(parts.data() + u * kernels::hash_parts, kernels::hash_parts));
  return out;
}

void HashingParams::begin_pass(memory::Pass pass, std::vector<UnitIndex> acquisitions) {
  engine_.begin_pass(pass, std::move(acquisitions));
}

memory::WeightLease HashingParams::acquire(UnitIndex unit, memory::Queue& compute) {
  auto lease = engine_.acquire(unit, compute);
  if (mode_ == Gradients::reduced || std::exchange(units_[position(unit)].weights_hashed, true))
    return lease;
  for (std::size_t i = 0; i < lease.size(); ++i)
    kernels::add_hash(compute, hash(of_weights, unit), lease[i], std::uint64_t{i} << 40);
  return lease;
}

/// A buffer that no open unit has; the queue reuses it after the hash of the unit before.
std::size_t HashingParams::take_scratch(std::size_t bytes) {
  auto best = scratch_.end();
  for (auto at = scratch_.begin(); at != scratch_.end(); ++at)
    if (at->is_free && at->buffer.bytes() >= bytes &&
        (best == scratch_.end() || at->buffer.bytes() < best->buffer.bytes()))
      best = at;
  if (best == scratch_.end()) {
    scratch_.push_back({memory::Buffer("gradients of a verified pass", memory::Purpose::gradients,
                                       bytes, memory::memory_space_of(compute_)),
                        true});
    best = std::prev(scratch_.end());
  }
  best->is_free = false;
  return static_cast<std::size_t>(best - scratch_.begin());
}

/// The parameters that train, at the places that they have in the engine's buffer of the unit.
std::vector<memory::TensorView> HashingParams::scratch_views(UnitIndex unit) {
  std::vector<memory::TensorView> views(parameters_[position(unit)]);
  auto const& in_model = trained_.in_model[position(unit)];
  if (in_model.empty()) return views;
  auto const& layout = engine_.plan().unit(unit);
  auto const dtype = engine_.config().dtype;
  std::size_t const bytes = static_cast<std::size_t>(layout.padded_numel) * size_of(dtype);
  auto const number = take_scratch(bytes);
  units_[position(unit)].scratch = number;
  void* const buffer = scratch_[number].buffer.data();
  memory::zero(compute_, buffer, bytes);  // a contribution may write tied parameters only
  auto const trained = zero::parameter_views(layout, buffer, dtype);
  for (std::size_t i = 0; i < in_model.size(); ++i) views[in_model[i]] = trained[i];
  return views;
}

memory::GradientLease HashingParams::gradient(UnitIndex unit, memory::Queue& compute) {
  auto& state = units_[position(unit)];
  bool const is_open = !state.gradients.empty();
  if (mode_ == Gradients::reduced) {
    auto lease = engine_.gradient(unit, compute);
    if (!is_open)
      for (std::size_t i = 0; i < parameters_[position(unit)]; ++i)
        state.gradients.push_back(lease[i]);
    return lease;
  }
  if (!is_open) state.gradients = scratch_views(unit);
  return {state.gradients, is_open ? memory::WriteMode::add : memory::WriteMode::overwrite};
}

void HashingParams::gradient_complete(UnitIndex unit, memory::Queue& compute) {
  auto& state = units_[position(unit)];
  for (std::size_t i = 0; i < state.gradients.size(); ++i)
    if (!state.gradients[i].empty())
      kernels::add_hash(compute, hash(of_gradients, unit), state.gradients[i],
                        std::uint64_t{i} << 40);
  state.gradients.clear();
  if (state.scratch) scratch_[*std::exchange(state.scratch, std::nullopt)].is_free = true;
  if (mode_ == Gradients::reduced) engine_.gradient_complete(unit, compute);
}

std::string Corruption::text() const {
  std::string const what = concat(what_text(finding.what), " of unit ", unit);
  std::string const start = concat("silent corruption at step ", step, ": ");
  if (finding.rank < 0)
    return concat(start, "the ", what, " differ, and the ranks do not tell which of them is wrong");
  return concat(start, "the ", what, " of rank ", finding.rank,
                node.empty() ? "" : " on node " + node, " (", device,
                finding.what == Finding::What::changed_states
                    ? ") are not those that an update before has left there"
                    : ") differ from those that the other ranks agree on");
}

ConfigTree Corruption::tree() const {
  ConfigTree out;
  out.set("step", step).set("what", what_text(finding.what)).set("unit", unit);
  if (finding.rank < 0) return out;
  return out.set("rank", finding.rank).set("node", node).set("device", device);
}

Verifier::Verifier(ModelContext const& context, zero::Engine& engine, Options options)
    : context_(context),
      engine_(engine),
      options_(std::move(options)),
      params_(context.model.units(), engine, context.compute) {}

bool Verifier::due(std::int64_t step) const {
  return !has_verified_ || step % options_.interval == 0;
}

memory::ParamProvider& Verifier::first_micro_step() {
  params_.begin(HashingParams::Gradients::reduced);
  return params_;
}

namespace {

Hashes with_loss(Hashes gradients, model::LossSum const& loss) {
  gradients.push_back(std::bit_cast<std::uint64_t>(loss.value()));
  return gradients;
}

}  // namespace

std::vector<std::uint64_t> Verifier::results(int shift, Recompute const& recompute) {
  int const ranks = context_.mesh.size();
  params_.begin(HashingParams::Gradients::discarded);
  auto const loss = recompute((context_.mesh.rank() + shift) % ranks, params_);
  return with_loss(params_.gradients(), loss);
}

std::uint64_t Verifier::changed_states() {
  auto const unit = engine_.changed_states();
  return unit ? position(*unit) + 1 : 0;
}

bool Verifier::agrees(std::int64_t step, model::LossSum const& loss, Recompute const& recompute) {
  has_verified_ = true;
  auto& comm = context_.mesh.world();
  auto const ranks = static_cast<std::size_t>(comm.size());
  auto const shifts = shifts_of(step / options_.interval, comm.size());
  RankHashes mine;
  mine.own = with_loss(params_.gradients(), loss);
  mine.first = results(shifts.first, recompute);
  mine.weights = params_.weights();
  auto const digests = hashes_of_ranks(
      comm, {changed_states(), digest(mine.weights), digest(mine.own), digest(mine.first)});
  Hashes changed;
  for (auto const& of_rank : digests) changed.push_back(of_rank[0]);
  if (auto const found = train::changed_states(changed); !found.empty()) act(step, found);
  bool equal = true;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const verified = (r + static_cast<std::size_t>(shifts.first)) % ranks;
    equal = equal && digests[r][1] == digests[0][1] && digests[verified][2] == digests[r][3];
  }
  if (equal) return true;
  mine.second = results(shifts.second, recompute);
  Hashes list = mine.weights;
  for (auto const* part : {&mine.own, &mine.first, &mine.second})
    list.insert(list.end(), part->begin(), part->end());
  std::vector<RankHashes> all;
  for (auto const& of_rank : hashes_of_ranks(comm, list)) {
    auto at = of_rank.begin();
    auto& rank = all.emplace_back();
    rank.weights = take_hashes(at, mine.weights.size());
    for (auto* part : {&rank.own, &rank.first, &rank.second})
      *part = take_hashes(at, mine.own.size());
  }
  act(step, findings(all, shifts));
  return std::exchange(repeated_step_, step) == step;
}

void Verifier::compare_copies(std::int64_t step, std::vector<zero::StateView> const& states) {
  auto& comm = context_.mesh.world();
  auto const& plan = engine_.plan();
  params_.begin(HashingParams::Gradients::discarded);
  context_.model.decode_nothing(params_, context_.compute);  // acquires every unit
  auto const weights = params_.weights();
  bool const has_copies = plan.ranks() < comm.size();
  Hashes of_states(weights.size() * kernels::hash_parts);
  auto const host = memory::make_inline_queue("hashes of states");
  for (std::size_t s = 0; has_copies && s < states.size(); ++s) {
    auto const layout = plan.of_extent(states[s].extent);
    for (UnitIndex u = memory::first_unit; u < layout.end_unit(); ++u)
      if (auto* const shard = states[s].unit_shards[position(u)])
        kernels::add_hash(*host, of_states.data() + position(u) * kernels::hash_parts,
                          {shard, Dtype::fp32, {layout.unit(u).shard_numel}},
                          std::uint64_t{s} << 40);
  }
  Hashes list = weights;
  list.push_back(changed_states());
  for (std::size_t u = 0; u < weights.size(); ++u)
    list.push_back(
        kernels::combined_hash(of_states.data() + u * kernels::hash_parts, kernels::hash_parts));
  std::vector<Hashes> all_weights, all_states;
  Hashes changed;
  for (auto const& of_rank : hashes_of_ranks(comm, list)) {
    auto at = of_rank.begin();
    all_weights.push_back(take_hashes(at, weights.size()));
    changed.push_back(*at++);
    all_states.push_back(take_hashes(at, weights.size()));
  }
  auto found = train::changed_states(changed);
  if (found.empty()) found = differing_copies(all_weights, 1, Finding::What::weights);
  if (found.empty()) found = differing_copies(all_states, plan.ranks(), Finding::What::states);
  if (!found.empty()) act(step, found);
}

void Verifier::act(std::int64_t step, std::vector<Finding> const& found) {
  auto const& units = context_.model.units();
  // a host has the ordinal -1
  auto const ordinals = hashes_of_ranks(context_.mesh.world(),
                                        {static_cast<std::uint64_t>(memory::Runtime::device())});
  std::vector<Corruption> all;
  std::string text;
  int suspect = -1;
  for (auto const& finding : found) {
    auto& one = all.emplace_back(
        Corruption{.step = step,
                   .finding = finding,
                   .unit = finding.unit < units.size() ? units[finding.unit].name : "loss"});
    if (finding.rank >= 0) {
      auto const rank = static_cast<std::size_t>(finding.rank);
      auto const ordinal = static_cast<std::int64_t>(ordinals[rank].front());
      one.device = ordinal < 0 ? "CPU" : concat("device ", ordinal);
      if (rank < options_.hosts.size()) one.node = options_.hosts[rank];
    }
    if (suspect < 0) suspect = finding.rank;
    text += (text.empty() ? "" : "; ") + one.text();
  }
  if (options_.report) options_.report(all);
  if (options_.warns_only) return;
  throw CorruptionError(
      suspect,
      concat(text, "; nothing of step ", step,
             " was saved; leave the node out and run the same command again (`tessera run` "
             "does so), which resumes from the newest checkpoint"));
}

}  // namespace tessera::train
