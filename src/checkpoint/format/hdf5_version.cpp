#include "tessera/checkpoint/format/directory.hpp"

#include "format/detail/hdf5.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {

std::string hdf5_version() {
  h5::start();  // must come before any other call of the library
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return concat(major, ".", minor, ".", release);
}

}  // namespace tessera::checkpoint
