#pragma once
/// Who owns which element: a value, computed without communication, the same on every rank.
///
/// A flat buffer holds a unit's parameters one after the other, each at a multiple of `alignment`
/// elements; the buffer is padded to ranks * shard elements and rank r owns [r * shard,
/// (r + 1) * shard). A rank's shards of all units, one after the other in unit order, are its
/// partition.  Rajbhandari et al., "ZeRO", SC'20, section 5.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/rank.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/optimizer_spec.hpp"
#include "tessera/zero/layout/offsets.hpp"

namespace tessera::zero {

using memory::first_unit;
using memory::UnitIndex;

/// A parameter in the flat buffer of its unit.
struct ParameterSlot {
  std::string name;
  std::vector<std::int64_t> shape;
  UnitOffset offset;  ///< first element in the unit's flat buffer
  std::int64_t numel = 0;
  bool decays = true;

  UnitOffset end() const { return offset + numel; }
  UnitOffset unit_offset(ParameterOffset at) const { return offset + at.value(); }
  ParameterOffset parameter_offset(UnitOffset at) const { return ParameterOffset(at - offset); }
  bool operator==(ParameterSlot const&) const = default;
};

/// A unit's flat buffer and its shards.
struct UnitLayout {
  std::string name;
  std::vector<ParameterSlot> parameters;
  /// The ranks of the plan that share the unit, ascending; empty: all. A unit that belongs to one
  /// coordinate of an axis of the mesh (experts) is on the ranks with that coordinate.
  std::vector<Rank> owners;
  std::int64_t numel = 0;            ///< parameters only
  std::int64_t shard_numel = 0;      ///< owned elements per rank, padding included
  std::int64_t padded_numel = 0;     ///< owners * shard_numel
  PartitionOffset partition_offset;  ///< first element of this unit's shard in a rank's partition

  bool is_on(Rank rank) const {
    return owners.empty() || std::binary_search(owners.begin(), owners.end(), rank);
  }
  /// Number of the shard of @p rank. @pre is_on(rank)
  std::int64_t shard_of(Rank rank) const {
    return owners.empty() ? value(rank)
                          : std::lower_bound(owners.begin(), owners.end(), rank) - owners.begin();
  }
  /// Offsets of the same element. An element outside the shard of @p rank has a ShardOffset outside
  /// [0, shard_numel).
  UnitOffset unit_offset(Rank rank, ShardOffset at) const {
    return UnitOffset(shard_of(rank) * shard_numel + at.value());
  }
  ShardOffset shard_offset(Rank rank, UnitOffset at) const {
    return ShardOffset(at.value() - shard_of(rank) * shard_numel);
  }
  ShardOffset shard_offset(PartitionOffset at) const { return ShardOffset(at - partition_offset); }
  PartitionOffset partition_offset_of(ShardOffset at) const {
    return partition_offset + at.value();
  }
  bool operator==(UnitLayout const&) const = default;
};

/// A run of one parameter's elements that one rank owns.
struct ShardExtent {
  UnitIndex unit = first_unit;
  int parameter = 0;                 ///< index in the unit
  ParameterOffset parameter_offset;  ///< first element of the run in the parameter
  PartitionOffset partition_offset;  ///< first element of the run in the rank's partition
  std::int64_t numel = 0;
  bool operator==(ShardExtent const&) const = default;
};

/// Returns the alignment of the parameters and shards of a plan in elements: with states per chunk
/// a chunk is on one rank, so that its largest magnitude needs no communication and is the same for
/// any number of ranks.
std::int64_t alignment_for(optim::OptimizerSpec const& optimizer);

/// Shape of a state of @p extent of a parameter with @p shape: its rows are the first dimension,
/// its columns all others.
std::vector<std::int64_t> state_shape(std::vector<std::int64_t> const& shape, optim::Extent extent);

/// Which rank owns which elements of all units.
class PartitionPlan {
 public:
  static constexpr std::int64_t default_alignment =
      32;  ///< elements: a 64-byte line of 16-bit numbers

  /// @throws InternalError when ranks < 1 or a shape is not positive.
  PartitionPlan(std::vector<memory::UnitSpec> const& units, int ranks,
                std::int64_t alignment = default_alignment);
  /// A plan of which some ranks own a unit: UnitLayout::owners of each. Checkpoints are written and
  /// read by such plans; an engine has that of its shard group. Offsets in a rank's partition leave
  /// room for units of other ranks.
  /// @throws InternalError, also when owners are not ascending ranks of the plan
  PartitionPlan(std::vector<memory::UnitSpec> const& units, int ranks,
                std::vector<std::vector<Rank>> const& owners,
                std::int64_t alignment = default_alignment);

  int ranks() const { return ranks_; }
  /// The partition that a rank of the job has: every ranks() consecutive ranks have a copy of the
  /// states.
  Rank rank_of(int rank) const { return Rank(rank % ranks_); }
  /// Whether a rank of the job has a part of the first copy, which is the one that is saved.
  bool is_in_first_copy(int rank) const { return rank < ranks_; }
  std::int64_t alignment() const { return alignment_; }
  std::vector<UnitLayout> const& units() const { return units_; }
  UnitLayout const& unit(UnitIndex u) const { return units_[position(u)]; }
  UnitIndex end_unit() const {
    return UnitIndex(static_cast<int>(units_.size()));
  }  ///< one after
     ///< the last

  std::int64_t parameter_count() const {
    return parameter_count_;
  }  ///< elements of all parameters, without padding
  std::int64_t partition_numel() const {
    return partition_numel_;
  }  ///< elements of a rank's partition, with padding
  std::int64_t padded_count() const { return partition_numel_ * ranks_; }
  std::int64_t largest_unit() const;  ///< padded elements of the largest unit

  /// Runs that @p rank owns, in partition order, without padding.
  std::vector<ShardExtent> extents(Rank rank) const;

  /// The partition of a state of @p extent: the same units and parameters, with the shapes that the
  /// state has, cut over the ranks by the same rule. Chunks are on the rank that has their
  /// elements.
  /// @throws InternalError for states per chunk when a shard could end within one
  PartitionPlan of_extent(optim::Extent extent) const;

  bool operator==(PartitionPlan const&) const = default;

 private:
  int ranks_;
  std::int64_t alignment_;
  std::int64_t parameter_count_ = 0;
  std::int64_t partition_numel_ = 0;
  std::vector<UnitLayout> units_;
};

/// The parameters of @p unit in a flat buffer that starts at @p base.
std::vector<memory::TensorView> parameter_views(UnitLayout const& unit, void* base, Dtype dtype);

}  // namespace tessera::zero
