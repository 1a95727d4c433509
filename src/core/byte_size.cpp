#include "tessera/core/byte_size.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <system_error>

#include "tessera/core/error.hpp"

namespace tessera {

std::int64_t parse_size(std::string const& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit units[] = {{"", 1},         {"B", 1},           {"KB", 1e3},
                                   {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},
                                   {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}};
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (auto const& known : units)
    if (error == std::errc{} && unit == known.name && number * known.bytes >= 1 &&
        number * known.bytes < 9e18)
      return static_cast<std::int64_t>(number * known.bytes);
  throw UsageError(
      concat("'", text, "' is not a size; write 5GB, 500MB, 2GiB or a number of bytes"));
}

}  // namespace tessera
