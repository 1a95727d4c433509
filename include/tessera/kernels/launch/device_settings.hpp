#pragma once
/// How kernels on a device are chosen. Set once, before the first kernel; the host's kernels do not
/// look at it.

#include <string>

namespace tessera::kernels {

/// Which attention kernels a device uses.
enum class DeviceAttention {
  automatic,  ///< cuDNN's where it serves the shape, else the portable kernel
  cudnn,      ///< refuse what cuDNN does not serve
  portable,
};

/// Where a device computes GELU.
enum class DeviceGelu {
  automatic,  ///< fused in fp16 and bf16 where that is known to pay: Hopper and later with
              ///< cuBLASLt 12.5 or newer
  fused,      ///< in the epilogue of the product wherever cuBLASLt serves it
  separate,   ///< always a kernel of its own
};

/// The settings of all kernels of a process.
struct DeviceSettings {
  DeviceAttention attention = DeviceAttention::automatic;
  bool tf32 = false;  ///< fp32 products on tensor cores: operands rounded to 10 bits of fraction,
                      ///< sums in fp32
  bool deterministic =
      true;  ///< equal bits in every run: no algorithm that sums in an order of its own choice
  DeviceGelu gelu = DeviceGelu::automatic;
  int product_multiprocessors = 0;  ///< that a matrix product is planned for; 0: all of the device
  /// File of cuBLASLt's algorithms that were the fastest; those of other shapes are measured and
  /// added. Empty: the first that the library names, without a measurement.
  std::string product_algorithms{};

  bool operator==(DeviceSettings const&) const = default;
};
DeviceSettings const& device_settings();
void set_device_settings(DeviceSettings const& settings);

}  // namespace tessera::kernels
