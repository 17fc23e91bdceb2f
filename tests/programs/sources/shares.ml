(* Three functions whose shares of the processor time it tells itself. *)
let sink = ref 1

let[@inline never] alpha x =
  let x = ref x in
  for _ = 1 to 500_000 do
    x := !x lxor (!x lsl 13);
    x := !x lxor (!x lsr 7);
    x := !x lxor (!x lsl 17)
  done;
  !x

let[@inline never] beta words = List.length (List.sort compare words)

module Table = Map.Make (Int)

let[@inline never] gamma keys =
  let table = ref Table.empty in
  for i = 1 to keys do
    table := Table.add (i * 7919 mod 10007) (string_of_int i) !table
  done;
  Table.cardinal !table

let taken = Array.make 3 0.0

let[@inline never] outer words =
  let a = Sys.time () in
  sink := !sink + alpha (!sink + 1);
  let b = Sys.time () in
  sink := !sink + beta words;
  let c = Sys.time () in
  sink := !sink + gamma 3000;
  let d = Sys.time () in
  taken.(0) <- taken.(0) +. b -. a;
  taken.(1) <- taken.(1) +. c -. b;
  taken.(2) <- taken.(2) +. d -. c

let () =
  let words = List.init 5000 (fun i -> string_of_int (i * 7919 mod 10007)) in
  let told = ref (Sys.time ()) in
  while true do
    outer words;
    if Sys.time () > !told +. 0.2 then begin
      told := Sys.time ();
      Printf.printf "alpha %.4f beta %.4f gamma %.4f\n%!" taken.(0) taken.(1) taken.(2)
    end
  done
