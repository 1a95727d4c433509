# The command lines of guides for DeepSpeed and Accelerate with Tessera's programs: gpt2-xl on one and two GPUs, StarCoder on two
# nodes with eight. gpt2-xl and starcoder are Hugging Face directories. The guides' own words stay after tessera launch.

# Accelerate, one GPU and two
mpirun -np 1 tessera-train --accelerate_config configs/guides/accelerate_1_gpu.yaml --model_name_or_path gpt2-xl --train_file data/data.json --output_dir outputs --overwrite_output_dir --do_train --do_eval --fp16 --per_device_train_batch_size 1 --per_device_eval_batch_size 1
mpirun -np 2 tessera-train --accelerate_config configs/guides/accelerate_2_gpu.yaml --model_name_or_path gpt2-xl --train_file data/data.json --output_dir outputs --overwrite_output_dir --do_train --do_eval --fp16 --per_device_train_batch_size 1 --per_device_eval_batch_size 1

# DeepSpeed, stage 3, one GPU and two
tessera launch --num_gpus=1 examples/pytorch/language-modeling/run_clm.py --deepspeed configs/guides/gpt2_xl_zero3.json --model_name_or_path gpt2-xl --train_file data/data.json --output_dir outputs --overwrite_output_dir --do_train --do_eval --fp16 --per_device_train_batch_size 1 --per_device_eval_batch_size 1
tessera launch --num_gpus=2 examples/pytorch/language-modeling/run_clm.py --deepspeed configs/guides/gpt2_xl_zero3.json --model_name_or_path gpt2-xl --train_file data/data.json --output_dir outputs --overwrite_output_dir --do_train --do_eval --fp16 --per_device_train_batch_size 2 --per_device_eval_batch_size 2

# StarCoder: 20 and 50 steps of the tables, one line per configuration of the folder
mpirun -np 16 tessera-train --deepspeed configs/guides/starcoder_zero1_bf16.json --model_name_or_path starcoder --train_file data/data.json --output_dir outputs --do_train --bf16 --max_steps 50 --per_device_train_batch_size 1
mpirun -np 16 tessera-train --deepspeed configs/guides/starcoder_zero2_bf16.json --model_name_or_path starcoder --train_file data/data.json --output_dir outputs --do_train --bf16 --max_steps 50 --per_device_train_batch_size 1
mpirun -np 16 tessera-train --deepspeed configs/guides/starcoder_zero3_bf16.json --model_name_or_path starcoder --train_file data/data.json --output_dir outputs --do_train --bf16 --max_steps 50 --per_device_train_batch_size 1
mpirun -np 16 tessera-train --deepspeed configs/guides/starcoder_zero3_fp16.json --model_name_or_path starcoder --train_file data/data.json --output_dir outputs --do_train --fp16 --max_steps 50 --per_device_train_batch_size 1
