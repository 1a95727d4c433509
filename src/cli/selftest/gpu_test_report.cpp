#include "selftest/gpu_test_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

constexpr double slow_gpu = 0.8, slow_link = 0.5;
constexpr double giga = 1e-9;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

std::string name_of(GpuReport const& report, int rank) {
  auto const& gpu = report.gpus[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} ({} {} {})", rank, gpu.host, gpu.model, gpu.bus);
}

struct Figure {
  char const* name;
  double GpuFigures::*rate;
};
constexpr Figure figures[] = {{"memory", &GpuFigures::memory},
                              {"bf16 products", &GpuFigures::products},
                              {"copies from the host", &GpuFigures::to_device},
                              {"copies to the host", &GpuFigures::from_device}};

void add_wrong_results(GpuReport const& report, std::vector<std::string>& out) {
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    auto const& gpu = report.gpus[i];
    auto const who = name_of(report, static_cast<int>(i));
    if (gpu.wrong_bytes > 0)
      out.push_back(fmt::format("{}: {} of {} of its memory came back changed; take it out of use",
                                who, counted(gpu.wrong_bytes, "byte"),
                                human_bytes(gpu.tested_bytes)));
    if (gpu.wrong_products > 0)
      out.push_back(fmt::format("{}: {} of a matrix product wrong; take it out of use", who,
                                counted(gpu.wrong_products, "element")));
  }
  for (auto const& link : report.links)
    if (link.wrong_bytes > 0)
      out.push_back(fmt::format("{} to {}: {} of a message came back changed",
                                name_of(report, link.from), name_of(report, link.to),
                                counted(link.wrong_bytes, "byte")));
}

void add_slow_gpus(GpuReport const& report, std::vector<std::string>& out) {
  for (auto const& [name, rate] : figures) {
    std::map<std::string, std::vector<double>> by_model;
    for (auto const& gpu : report.gpus) by_model[gpu.model].push_back(gpu.*rate);
    for (std::size_t i = 0; i < report.gpus.size(); ++i) {
      auto const& gpu = report.gpus[i];
      double const usual = median(by_model[gpu.model]);
      if (gpu.*rate < slow_gpu * usual)
        out.push_back(fmt::format("{}: {} at {:.2f} of the median of {}",
                                  name_of(report, static_cast<int>(i)), name, gpu.*rate / usual,
                                  counted(by_model[gpu.model].size(), "GPU")));
    }
  }
}

std::vector<double> bandwidths(GpuReport const& report, bool in_node) {
  std::vector<double> out;
  for (auto const& link : report.links)
    if (link.in_node == in_node) out.push_back(link.bandwidth);
  return out;
}

void add_slow_links(GpuReport const& report, std::vector<std::string>& out) {
  for (auto const& link : report.links) {
    auto const alike = bandwidths(report, link.in_node);
    if (link.bandwidth < slow_link * median(alike))
      out.push_back(fmt::format(
          "{} to {}: {:.1f} GB/s, {:.2f} of the median of {} {}", name_of(report, link.from),
          name_of(report, link.to), giga * link.bandwidth, link.bandwidth / median(alike),
          counted(alike.size(), "link"), link.in_node ? "inside nodes" : "between nodes"));
  }
}

std::string links_line(GpuReport const& report, bool in_node) {
  auto const rates = bandwidths(report, in_node);
  if (rates.empty()) return "";
  auto const [least, most] = std::minmax_element(rates.begin(), rates.end());
  return fmt::format("{} {}: {:.1f} / {:.1f} / {:.1f} GB/s (slowest, median, fastest)\n",
                     counted(rates.size(), "link"), in_node ? "inside nodes" : "between nodes",
                     giga * *least, giga * median(rates), giga * *most);
}

}  // namespace

std::string gpu_table(GpuReport const& report) {
  std::string out =
      fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8} {:>9} {:>10} {:>8} {:>9}\n", "rank", "host",
                  "GPU", "bus", "memory", "products", "from host", "to host", "tested");
  out += fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8} {:>9} {:>10} {:>8} {:>9}\n", "", "", "", "",
                     "GB/s", "TFLOP/s", "GB/s", "GB/s", "");
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    auto const& g = report.gpus[i];
    out += fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8.1f} {:>9.2f} {:>10.1f} {:>8.1f} {:>9}\n", i,
                       g.host, g.model, g.bus, giga * g.memory, 1e-12 * g.products,
                       giga * g.to_device, giga * g.from_device, human_bytes(g.tested_bytes));
  }
  out += links_line(report, true) + links_line(report, false);
  if (report.all_gather > 0.0)
    out += fmt::format(
        "all ranks, {}: all-gather {:.1f} GB/s, reduce-scatter {:.1f} GB/s (bus "
        "bandwidth)\n",
        human_bytes(report.message_bytes), giga * report.all_gather, giga * report.reduce_scatter);
  if (!report.compares_speeds)
    out += "the devices are simulated on the host's cores: their speeds are not compared\n";
  return out;
}

std::vector<std::string> gpu_faults(GpuReport const& report) {
  std::vector<std::string> out;
  add_wrong_results(report, out);
  if (!report.compares_speeds) return out;
  add_slow_gpus(report, out);
  add_slow_links(report, out);
  return out;
}

}  // namespace tessera::cli
